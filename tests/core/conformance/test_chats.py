"""Chats that the engine renders by code: its own prompts (``vectors/chats``), and ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from chat_cases import MODELS, REQUESTS, RUST_MODELS, RUST_REQUESTS, rust_files
from comparison import read_vectors
from paths import VECTORS
from small_models import FAMILY_MODELS, Files, fingerprint, write_model

from mmroute import Normalizer
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import InexactError
from mmroute.requests.lines import request_of

pytestmark = pytest.mark.conformance


def prompt(model: Normalizer, fields: dict[str, Any]) -> dict[str, Any] | None:
    """The rendered prompt of a chat, in the form of the vectors; None if it is refused."""
    request = request_of(fields)
    chat = model.model.chat
    try:
        rendered = chat.render(chat.read(request), {}, request)
    except InexactError:
        return None
    if isinstance(rendered, str):
        return {"prompt": rendered}
    return {"ids": list(rendered)}


@pytest.mark.parametrize("name", MODELS)
def test_prompts_are_those_of_the_engine(name: str, tmp_path: Path) -> None:
    directory = write_model(FAMILY_MODELS[name](), tmp_path / name)
    model = Normalizer.from_pretrained(directory, model_id=name)
    check(model, REQUESTS, VECTORS / "chats" / f"{name}.jsonl", FAMILY_MODELS[name]())


@pytest.mark.parametrize("name", RUST_MODELS)
def test_prompts_are_those_of_the_rust_frontend(name: str, tmp_path: Path) -> None:
    directory = write_model(rust_files(name), tmp_path / name)
    settings = RustSettings()
    model = Normalizer.from_pretrained(directory, model_id=name, engine_settings=settings)
    check(model, RUST_REQUESTS, VECTORS / "chats" / "rust" / f"{name}.jsonl", rust_files(name))


def check(
    model: Normalizer, requests: Mapping[str, dict[str, Any]], vectors: Path, files: Files
) -> None:
    meta, lines = read_vectors(vectors)
    assert meta["fingerprint"] == fingerprint(files), "the vectors are of other files"
    assert [line["id"] for line in lines] == list(requests)
    wrong = {}
    for line in lines:
        expected = None if "refused" in line["expect"] else line["expect"]
        found = prompt(model, requests[line["id"]])
        if found != expected:
            wrong[line["id"]] = found
    assert not wrong, json.dumps(wrong, indent=1, default=int)
