"""SGLang's own answers to bodies of its routes (``vectors/server/sglang``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import pytest
from paths import VECTORS
from sglang_files import files_of
from small_models import fingerprint, write_model

from mmroute import EngineSettings, InexactError, Normalizer, from_openai
from mmroute.server.engines.sglang import ApiError, SglangModel, answer_body

FILES: Final = sorted((VECTORS / "server" / "sglang").glob("*.jsonl"))
CHATS: Final = "/v1/chat/completions"
RENDERED: Final = {path: f"{path}/render" for path in (CHATS, "/v1/messages", "/v1/responses")}


@cache
def lines_of(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    meta, *cases = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return meta, cases


CASES: Final = [
    pytest.param(path, case, id=f"{path.stem}-{case['id']}")
    for path in FILES
    for case in lines_of(path)[1]
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], SglangModel]:
    @cache
    def load(path: Path) -> SglangModel:
        meta, _ = lines_of(path)
        files = files_of(meta["model"])
        assert fingerprint(files) == meta["fingerprint"], "generate the vectors again"
        directory = write_model(files, tmp_path_factory.mktemp("served") / meta["model"])
        options = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in meta["options"].items())
        line = f"sglang serve {directory} --enable-multimodal {options}"
        settings = EngineSettings.from_args(line)
        return SglangModel.of(Normalizer.from_pretrained(directory, engine_settings=settings), "m")

    return load


def answered(model: SglangModel, route: str, body: Any) -> dict[str, Any]:
    try:
        if route == CHATS:
            routing = model.normalizer.answer(from_openai(body, backend="sglang"))
            return {"token_ids": routing.token_ids.tolist()} if routing.exact else {}
        reply = answer_body(model, RENDERED.get(route, route), body)
    except (ApiError, InexactError):
        return {}
    if route in RENDERED:
        return {"token_ids": reply.body["token_ids"]}
    answer: dict[str, Any] = json.loads(json.dumps(reply.body))
    return {"answer": answer}


@pytest.mark.parametrize(("path", "case"), CASES)
def test_a_route_answers_as_sglang_does(
    served: Callable[[Path], SglangModel], path: Path, case: dict[str, Any]
) -> None:
    expected = case["expect"]
    got = answered(served(path), case["route"], case["body"])
    if "refused" in expected:
        assert got == {}
    elif "answer" in expected:
        assert got == {"answer": expected["answer"]}
    else:
        runs = expected["token_runs"]
        ids = list(chain.from_iterable(repeat(token, count) for token, count in runs))
        assert got == {"token_ids": ids}


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/messages/render", {"max_tokens": 1}),
        ("/v1/messages/count_tokens", {}),
        ("/tokenize", {}),
    ],
)
def test_what_only_the_newest_version_was_asked_is_refused_for_others(
    route: str, body: dict[str, Any], small_model: Callable[[str], Path]
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body}
    new = Normalizer.from_pretrained(small_model("small-llama"), backend="sglang")
    assert answer_body(SglangModel.of(new, "m"), route, body).body
    old = SglangModel.of(new.matching("sglang==0.5.22"), "m")
    with pytest.raises((ApiError, InexactError), match=r"covered for sglang 0\.5\.23"):
        answer_body(old, route, body)
