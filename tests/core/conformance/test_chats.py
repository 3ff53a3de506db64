"""Chats that the engine renders by code: its own prompts (``vectors/chats``), and ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from comparison import read_lines, read_vectors
from paths import VECTORS
from server_vectors import START_DATE
from small_models import FAMILY_MODELS, RUST_MODELS, Files, fingerprint, write_model

from mmroute import Normalizer
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import InexactError
from mmroute.requests.lines import request_of

CHATS = VECTORS / "chats"
RUST = CHATS / "rust"

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


@pytest.mark.parametrize("path", sorted(CHATS.glob("small-*.jsonl")), ids=lambda path: path.stem)
def test_prompts_are_those_of_the_engine(path: Path, tmp_path: Path) -> None:
    files = FAMILY_MODELS[path.stem]()
    directory = write_model(files, tmp_path / path.stem)
    model = Normalizer.from_pretrained(directory, model_id=path.stem)
    check(model, read_lines(CHATS / "requests.jsonl"), path, files)


@pytest.mark.parametrize("path", sorted(RUST.glob("small-*.jsonl")), ids=lambda path: path.stem)
def test_prompts_are_those_of_the_rust_frontend(path: Path, tmp_path: Path) -> None:
    files = RUST_MODELS[path.stem]()
    model = Normalizer.from_pretrained(
        write_model(files, tmp_path / path.stem),
        model_id=path.stem,
        engine_settings=RustSettings(start_date=START_DATE),
    )
    requests = [line for folder in (CHATS, RUST) for line in read_lines(folder / "requests.jsonl")]
    check(model, requests, path, files)


def check(
    model: Normalizer, requests: Sequence[dict[str, Any]], vectors: Path, files: Files
) -> None:
    meta, lines = read_vectors(vectors)
    assert meta["fingerprint"] == fingerprint(files), "the vectors are of other files"
    wrong = {}
    for request, line in zip(requests, lines, strict=True):
        assert request["id"] == line["id"]
        expected = None if "refused" in line["expect"] else line["expect"]
        found = prompt(model, request)
        if found != expected:
            wrong[line["id"]] = found
    assert not wrong, json.dumps(wrong, indent=1, default=int)
