"""What a running vLLM 0.33.0 answered, and what is answered here: the same, but for a few."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import httpx
import pytest
from cases import PLACEHOLDERS
from chat_requests import CHAT, TOKENIZE
from comparison import read_lines
from harmony_cases import HARMONY_MODEL, harmony_cases, harmony_model
from paths import VECTORS
from replayed import Posted
from server_cases import SERVED_NAMES, ServerCase, server_cases
from server_helpers import answers_to, serving
from side_by_side import verdict
from small_models import SMALL_MODELS, fingerprint, write_model
from two_servers import START_DATE, Reply

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server import ModelSource, ServerSettings

pytestmark = pytest.mark.conformance

RECORDED: Final = VECTORS / "server"
MODELS: Final = sorted(path.stem for path in RECORDED.glob("*.jsonl"))

MOSTLY: Final = 0.95
WITH_ALL_DIFFERENCES: Final = "small-llava-1.5"  # its template takes tools
# Name -> the difference that explains it, of tools/server_differences.py.
DELIBERATE: Final = {
    f"{CHAT} warm-up without types": "a router's first request, whose parts have no type",
    f"{CHAT} tools, auto": "tools without a tool parser",
    f"{CHAT} tools, required": "tools without a tool parser",
    f"{CHAT} audio": "an item that the model does not take, which the engine itself refuses",
    f"{CHAT} video": "an item that the model does not take, which the engine itself refuses",
    f"{CHAT} not base64": "a data URL that is no base64",
    f"{CHAT} unreachable": "links are not followed unless allowed",
    f"{CHAT} null link": "a picture that the engine holds, without its size",
    f"{CHAT} file": "a server error for a client's mistake",
    f"{TOKENIZE} not UTF-8": "a body that is no JSON",
    f"{TOKENIZE} nested deeply": "a body of too many brackets",
    "HEAD /health": "HEAD",
    "GET /version": "mmroute's own version",
    "GET /tokenizer_info": "tokenizer information of the files, not of a tokenizer object",
}


def cases_of(model: str) -> Sequence[ServerCase]:
    return harmony_cases() if model == HARMONY_MODEL else server_cases(PLACEHOLDERS[model])


def recorded(model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    meta, *lines = read_lines(RECORDED / f"{model}.jsonl")
    return meta["meta"], {line["name"]: line for line in lines}


@pytest.fixture(scope="module", params=MODELS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, tuple[Reply, Reply]]]:
    """A model, and by the name of a request the recorded answer and the one here."""
    name = request.param
    meta, lines = recorded(name)
    files = harmony_model() if name == HARMONY_MODEL else SMALL_MODELS[name]()
    assert meta["fingerprint"] == fingerprint(files), "the answers are stale"
    directory = str(write_model(files, tmp_path_factory.mktemp("recorded")))
    settings = VllmSettings.from_args(f"VLLM_SYSTEM_START_DATE={START_DATE}")
    source = ModelSource(directory, SERVED_NAMES, meta["model_id"], engine_settings=settings)
    cases = cases_of(name)
    assert lines.keys() == {case.name for case in cases}
    with serving([source], ServerSettings(tokenizer_info=True)) as client:
        found = answers_to(client, map(sent, cases))
    return name, {
        case.name: (
            Reply(lines[case.name]["status"], lines[case.name]["body"]),
            Reply(answer.status_code, json.loads(answer.content) if answer.content else ""),
        )
        for case, answer in zip(cases, found, strict=True)
    }


def sent(case: ServerCase) -> httpx.Request:
    url = f"http://testserver{case.path}"
    return httpx.Request(case.method, url, content=case.raw, headers=case.headers)


def test_every_answer_is_that_of_the_running_engine(
    pair: tuple[str, dict[str, tuple[Reply, Reply]]],
) -> None:
    model, replies = pair
    found = {
        case.name: verdict(Posted(case.name, case.path, case.body), *replies[case.name])
        for case in cases_of(model)
    }
    different = {name: why for name, why in found.items() if why != "same"}
    assert different.items() <= DELIBERATE.items()
    assert len(found) - len(different) > MOSTLY * len(found)
    if model == WITH_ALL_DIFFERENCES:
        assert different == DELIBERATE, "what is no difference any more"
