"""Images under vLLM's Rust frontend: its own answers (``vectors/rust/media``), and ours."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from comparison import read_lines
from paths import VECTORS
from small_models import RUST_MODELS, changed_files, fingerprint, write_model

from mmroute import Normalizer, Routing
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.requests.lines import request_of

FOLDER = VECTORS / "rust" / "media"
RUST = RustSettings(max_model_len=8192)
MODELS = {
    path.stem: meta["name"]
    for path in sorted(FOLDER.glob("*.jsonl"))
    if "name" in (meta := read_lines(path)[0])
}
"""Model -> the model string by which it is served."""


def lines_of(path: Path) -> list[dict[str, Any]]:
    return read_lines(path)[1:]


# Answered by the frontend, and refused here by name.
OF_FILES = {
    "file-cut-jpeg-last-byte",
    "file-jpeg-exif-6-unwritable",
    "file-jpeg-xmp-8",
    "file-png-exif-6-behind",
    "file-png-xmp-6",
    "jpeg-exif-twice",
    "file-tiff",
    "file-tiff-exif-6",
    "file-tiff-gray-lzw",
    "file-tiff-xmp-6",
    "png-without-1",
    "png-without-4",
}
REFUSED = {
    "small-phi-3.5-vision": {
        line["id"] for line in lines_of(FOLDER / "small-phi-3.5-vision.jsonl")
    },
    "small-llava-next": OF_FILES,
}

# Likewise: the engine plans with another number, or the frontend takes another token.
DISAGREEING = {"another-budget", "another-side", "least-area", "no-patch-token"}


OUR_FIELDS = {"id", "expect", "model", "name", "changed"}

pytestmark = pytest.mark.conformance


def expected(line: dict[str, Any]) -> dict[str, Any] | None:
    expect: dict[str, Any] = line["expect"]
    return None if "refused" in expect else expect


def answered(routing: Routing) -> dict[str, Any] | None:
    if not routing.exact:
        return None
    runs = [[token, len(list(run))] for token, run in groupby(routing.token_ids.tolist())]
    images = [
        [
            str(identity),
            placed.offset,
            placed.length,
            [list(run) for run in placed.embed_runs or ((True, placed.length),)],
        ]
        for placed, identity in zip(routing.placeholders, routing.identities, strict=True)
    ]
    return {"token_runs": runs, "images": images}


def differences(normalizer: Normalizer, lines: list[dict[str, Any]]) -> tuple[set[str], set[str]]:
    """The requests that are answered otherwise, and those that are refused without need."""
    wrong, refused = set(), set()
    for line in lines:
        fields = {k: v for k, v in line.items() if k not in OUR_FIELDS}
        ours, theirs = answered(normalizer.answer(request_of(fields))), expected(line)
        if ours is None and theirs is not None:
            refused.add(line["id"])
        elif ours != theirs:
            wrong.add(line["id"])
    return wrong, refused


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a model, of which one file may have other fields."""
    root = tmp_path_factory.mktemp("models")

    @functools.cache
    def written(model: str) -> Path:
        return write_model(RUST_MODELS[model](), root / model)

    def directory(model: str, *changed: Any) -> Path:
        if not changed:
            return written(model)
        return write_model(
            changed_files(RUST_MODELS[model](), *changed),
            tmp_path_factory.mktemp("changed") / model,
        )

    return directory


@pytest.mark.parametrize(("model", "name"), MODELS.items())
def test_requests(model: str, name: str, directory: Callable[..., Path]) -> None:
    path = FOLDER / f"{model}.jsonl"
    meta = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
    assert meta["fingerprint"] == fingerprint(RUST_MODELS[model]())
    normalizer = Normalizer.from_pretrained(directory(model), model_id=name, engine_settings=RUST)
    wrong, refused = differences(normalizer, lines_of(path))
    assert wrong == set()
    assert refused == REFUSED.get(model, set())


@pytest.mark.parametrize(("model", "name"), MODELS.items())
def test_requests_of_an_earlier_version(
    model: str, name: str, directory: Callable[..., Path]
) -> None:
    others = {
        line["id"]: {"expect": line["expect"]}
        for line in lines_of(FOLDER / "0.32.0.jsonl")
        if line["model"] == model
    }
    lines = [line | others.get(line["id"], {}) for line in lines_of(FOLDER / f"{model}.jsonl")]
    normalizer = Normalizer.from_pretrained(
        directory(model), backend="vllm==0.32.0", model_id=name, engine_settings=RUST
    )
    wrong, refused = differences(normalizer, lines)
    assert wrong == set()
    assert refused <= OF_FILES


@pytest.mark.parametrize(
    ("file", "needless"), [("changed", DISAGREEING), ("names", set())], ids=["changed", "names"]
)
def test_which_models_have_images(
    file: str, needless: set[str], directory: Callable[..., Path]
) -> None:
    """It depends on the string that a model is served by, and on fields of its files."""
    wrong, refused = set(), set()
    for line in lines_of(FOLDER / f"{file}.jsonl"):
        model = directory(line["model"], *line.get("changed", ()))
        normalizer = Normalizer.from_pretrained(model, model_id=line["name"], engine_settings=RUST)
        one, other = differences(normalizer, [line])
        wrong |= one
        refused |= other
    assert (wrong, refused) == (set(), needless)
