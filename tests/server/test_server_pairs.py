"""What a running vLLM 0.33.0 answered, and what is answered here: the same, but for a few."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import httpx
import pytest
from chat_requests import CHAT, MESSAGES, RESPONSES, TOKENIZE
from comparison import read_lines
from server_helpers import answers_to, serving
from server_vectors import (
    SERVED_NAMES,
    SERVER,
    START_DATE,
    ServerCase,
    requests_to,
    served_files,
)
from servers import Reply
from small_models import fingerprint, write_model

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server import ModelSource, ServerSettings

pytestmark = pytest.mark.conformance

MODELS: Final = sorted(path.stem for path in SERVER.glob("*.jsonl"))

MOSTLY: Final = 0.9
WITH_ALL_DIFFERENCES: Final = "small-llava-1.5"  # its template takes tools
# Name -> vLLM's status and the one here: the differences that docs/server-reference.md and the
# vectors' SERVER.md list.
DELIBERATE: Final = {
    f"{CHAT} warm-up without types": (400, 200),
    f"{CHAT} tools, auto": (400, 200),
    f"{CHAT} tools, required": (400, 200),
    f"{CHAT} audio": (400, 422),
    f"{CHAT} video": (400, 422),
    f"{CHAT} not base64": (501, 400),
    f"{CHAT} unreachable": (500, 422),
    f"{CHAT} null link": (400, 422),
    f"{CHAT} file": (500, 400),
    f"{TOKENIZE} not UTF-8": (400, 400),  # of another shape
    f"{TOKENIZE} nested deeply": (400, 413),
    # Types of what changes no prompt are not checked.
    f"{CHAT} conversation": (400, 200),
    f"{MESSAGES} conversation": (400, 200),
    **dict.fromkeys(
        (f"{RESPONSES} item 6", f"{RESPONSES} item 22", f"{RESPONSES} custom tool 0"), (400, 200)
    ),
    # Not covered, by name: an ID of the time, items of no type, parts that are no list.
    f"{MESSAGES} refused 6": (400, 422),
    **{f"{RESPONSES} item {n}": (200, 422) for n in (8, 9, 10, 12, 16, 23)},
    **{f"{RESPONSES} item {n}": (400, 422) for n in (11, 15, 17, 26, 27)},
    f"{RESPONSES} image of custom_tool_call_output with detail and ID": (200, 422),
    f"{RESPONSES} refused 17": (200, 422),
    **dict.fromkeys(
        (
            f"{CHAT} odd: embeddings",
            f"{CHAT} refused: audio",
            f"{CHAT} refused: a video behind a link",
        ),
        (400, 422),
    ),
    f"{CHAT} odd: another API's message": (200, 422),
    f"{CHAT} refused: a link without a size": (500, 422),
    "HEAD /health": (405, 200),
    "GET /version": (200, 200),  # mmroute's own beside it
    "GET /tokenizer_info": (200, 200),  # of the files, not of a tokenizer object
}
# Harmony's: the engine loses parts that its schema leaves to be read later.
OF_HARMONY: Final = {f"{TOKENIZE} {n}": (200, 422) for n in (3, 4, 5)}
# What is drawn at random, or the time, or where a server's files are.
_DRAWN: Final = re.compile(
    r'(?<=cmpl-|perm-|resp_)[0-9a-f]{16,}|(?<="created": )\d+|(?<="root": )"[^"]*"'
)
_NOT_TOLD: Final = frozenset({"is_embed", "kwargs_data", "mm_metadata"})  # no tensors


def recorded(model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    meta, *lines = read_lines(SERVER / f"{model}.jsonl")
    return meta["meta"], {line["name"]: line for line in lines}


@pytest.fixture(scope="module", params=MODELS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, tuple[Reply, Reply]]]:
    """A model, and by the name of a request the recorded answer and the one here."""
    name = request.param
    meta, lines = recorded(name)
    files = served_files(name)
    assert meta["fingerprint"] == fingerprint(files), "the answers are stale"
    directory = str(write_model(files, tmp_path_factory.mktemp("recorded")))
    settings = VllmSettings.from_args(f"VLLM_SYSTEM_START_DATE={START_DATE}")
    source = ModelSource(directory, SERVED_NAMES, meta["model_id"], engine_settings=settings)
    cases = requests_to(name)
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
    different = {
        name: (theirs.status, ours.status)
        for name, (theirs, ours) in replies.items()
        if told(theirs) != told(ours)
    }
    # Where the engine's own answer to such a request is another for this model.
    deliberate = DELIBERATE | OF_HARMONY
    allowed = {name: {theirs, 400, 500} for name, (theirs, _) in deliberate.items()}
    for name, (theirs, ours) in different.items():
        assert theirs in allowed.get(name, ()), different
        assert ours == deliberate[name][1], different
    assert len(replies) - len(different) > MOSTLY * len(replies)
    if model == WITH_ALL_DIFFERENCES:
        assert different == DELIBERATE, "what is no difference any more"


def told(reply: Reply) -> tuple[int, str]:
    """What is compared: of an error its status and shape, else the whole answer, in its order."""
    if isinstance(reply.body, dict) and "error" in reply.body:
        error = reply.body["error"]
        shape = [*reply.body, *error] if isinstance(error, dict) else [*reply.body]
        return reply.status, json.dumps([shape, error["code"] == reply.status])
    text = json.dumps(reply.body)
    body = json.loads(_DRAWN.sub("0", text), object_hook=_without_tensors)
    return reply.status, json.dumps(body)


def _without_tensors(value: dict[str, Any]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if name not in _NOT_TOLD}
