"""vLLM's Rust frontend: its own answers (``vectors/rust``), and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT
from comparison import expanded, read_lines
from paths import VECTORS
from server_helpers import serving
from small_models import SMALL_MODELS, fingerprint

from mmroute import Normalizer
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.engines.vllm_rust.template import RustTemplate
from mmroute.engines.vllm_rust.template_chat import RustChat
from mmroute.errors import ModelError
from mmroute.requests.lines import request_of
from mmroute.server.loading import ModelSource

RUST = RustSettings(max_model_len=4096)
FILES = sorted(p for p in (VECTORS / "rust").glob("*.jsonl") if p.stem != "templates")
# Answered by the frontend, and refused here by name.
REFUSED = {"prompt-unsure"}
REFUSED_TEMPLATES = {
    "macro-default-of-its-name", "macro-sets-what-it-reads", "order-of-capitals", "strftime",
}  # fmt: skip

TEMPLATE_MODEL = "small-qwen2.5-vl"

pytestmark = pytest.mark.conformance


def lines_of(path: Path) -> list[dict[str, Any]]:
    meta, *lines = read_lines(path)
    assert meta["fingerprint"] == fingerprint(SMALL_MODELS[meta["model"]]())
    return lines


def expected(line: dict[str, Any]) -> list[int] | None:
    runs = line["expect"].get("token_runs")
    return None if runs is None else expanded(runs)


def asked(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k not in ("expect", "template", "id")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_requests(path: Path, small_model: Callable[[str], Path]) -> None:
    normalizer = Normalizer.from_pretrained(
        small_model(path.stem), model_id=path.stem, engine_settings=RUST
    )
    refused, wrong = set(), {}
    for line in lines_of(path):
        routing = normalizer.answer(request_of(asked(line)))
        if not routing.exact and expected(line) is not None:
            refused.add(line["id"])
        elif routing.exact and routing.token_ids.tolist() != expected(line):
            wrong[line["id"]] = normalizer.model.tokenizer.decode(routing.token_ids.tolist())
    assert wrong == {}
    assert refused == REFUSED


def test_templates(small_model: Callable[[str], Path]) -> None:
    normalizer = Normalizer.from_pretrained(
        small_model(TEMPLATE_MODEL), model_id=TEMPLATE_MODEL, engine_settings=RUST
    )
    refused, wrong = set(), {}
    for line in lines_of(VECTORS / "rust" / "templates.jsonl"):
        text = answered(normalizer, line)
        if text is None and expected(line) is not None:
            refused.add(line["id"])
        elif text is not None and text != decoded(normalizer, expected(line)):
            wrong[line["id"]] = text
    assert wrong == {}
    assert refused == REFUSED_TEMPLATES


def answered(normalizer: Normalizer, line: dict[str, Any]) -> str | None:
    """The prompt of a request to the model with the template of its line."""
    assert isinstance(normalizer.model.chat, RustChat)
    try:
        template = RustTemplate.compile(line["template"], "the case")
    except ModelError:
        return None
    chat = replace(normalizer.model.chat, template=template)
    templated = replace(normalizer, model=replace(normalizer.model, chat=chat))
    routing = templated.answer(request_of(asked(line)))
    return decoded(normalizer, routing.token_ids.tolist()) if routing.exact else None


def decoded(normalizer: Normalizer, ids: list[int] | None) -> str | None:
    return None if ids is None else normalizer.model.tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["small-qwen2.5-vl", "small-llava-1.5"])
def test_no_answer_over_http_is_another(name: str, small_model: Callable[[str], Path]) -> None:
    """What the routes read of a body reaches the frontend's rules as it was sent."""
    source = ModelSource(str(small_model(name)), (name,), model_id=name, engine_settings=RUST)
    wrong = {}
    with serving([source]) as client:
        assert client.get("/version").json()["frontend"] == "rust"
        for line in lines_of(VECTORS / "rust" / f"{name}.jsonl"):
            body = asked(line)
            if "messages" not in body or line["id"] == "surrogate":  # which is no JSON of httpx
                continue
            reply = client.post(CHAT, json=body)
            if reply.status_code == 200 and reply.json()["token_ids"] != expected(line):
                wrong[line["id"]] = reply.json()["token_ids"]
    assert wrong == {}
