"""vLLM's own answers, case by case.

``vectors`` holds answers for small models that this repository builds itself, and for the embedded
model. Those of real models are compared in ``tests/slow``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from comparison import read_vectors
from conformance import matrix, own_fingerprint
from image_vectors import IMAGE_VECTORS, wrong_parts
from paths import VECTORS
from small_models import (
    FAMILY_MODELS,
    MEDIA_ANSWERED,
    SMALL_MODELS,
    fingerprint,
    media_model,
    write_model,
)

from mmroute import Normalizer
from mmroute.model_directory import EMBEDDED_MODEL

pytestmark = pytest.mark.conformance

MATRIX = Path(__file__).with_name("COUNTS.md")
NAME = 12  # characters: a text of fewer may be one of few words
OWN_VECTORS = sorted(VECTORS.glob("*.jsonl"))
FAMILY_VECTORS = sorted((VECTORS / "families").glob("*.jsonl"))
MEDIA_VECTORS = sorted((VECTORS / "media").glob("*.jsonl"))


def vector_name(path: Path) -> str:
    folder = {"images": "images-", "media": "media-"}.get(path.parent.name, "")
    return folder + path.stem


def test_every_small_model_has_vectors() -> None:
    assert {path.stem for path in OWN_VECTORS} == {*SMALL_MODELS, EMBEDDED_MODEL}


@pytest.fixture(scope="session")
def results(
    normalizer: Callable[[str], Normalizer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], dict[str, dict[str, str]]]:
    """What is wrong with the answer to each case of a file; computed once."""
    known: dict[Path, dict[str, dict[str, str]]] = {}

    def of(path: Path) -> dict[str, dict[str, str]]:
        if path not in known:
            meta, cases = read_vectors(path)
            if path in MEDIA_VECTORS:
                files = media_model(path.stem)
                expected = fingerprint(files)
                directory = write_model(files, tmp_path_factory.mktemp("media") / path.stem)
                model = Normalizer.from_pretrained(str(directory))
            else:
                expected, model = own_fingerprint(path.stem), normalizer(path.stem)
            assert meta["fingerprint"] == expected, "the vectors are of other files"
            assert model.model.model_id == meta.get("model_id", model.model.model_id)
            assert meta["backend_version"] in model.model.family.checked["vllm"]
            known[path] = {case["id"]: wrong_parts(model, case) for case in cases}
        return known[path]

    return of


@pytest.mark.parametrize("path", [*OWN_VECTORS, *IMAGE_VECTORS, *MEDIA_VECTORS], ids=vector_name)
def test_own_vectors(path: Path, results: Callable[[Path], dict[str, dict[str, str]]]) -> None:
    """IDs and ranges; for requests with files also identities, extra keys and block hashes."""
    wrong = {case_id: found for case_id, found in results(path).items() if found}
    assert not wrong, json.dumps(wrong, indent=1)


def test_every_small_model_with_media_of_its_template_has_vectors_of_them() -> None:
    assert {path.stem for path in MEDIA_VECTORS} == set(MEDIA_ANSWERED)


def test_every_small_family_has_vectors() -> None:
    assert {path.stem for path in FAMILY_VECTORS} == set(FAMILY_MODELS)


@pytest.mark.parametrize("path", FAMILY_VECTORS, ids=vector_name)
def test_family_vectors(path: Path, tmp_path: Path) -> None:
    """Sizes, placeholders and processor options of a family, and what it refuses."""
    meta, cases = read_vectors(path)
    files = FAMILY_MODELS[path.stem]()
    assert meta["fingerprint"] == fingerprint(files), "the vectors are of other files"
    model = Normalizer.from_pretrained(str(write_model(files, tmp_path / path.stem)))
    assert meta["backend_version"] in model.model.family.checked["vllm"]
    wrong = {case["id"]: parts for case in cases if (parts := wrong_parts(model, case))}
    assert not wrong, json.dumps(wrong, indent=1)


def test_the_matrix_in_the_documentation(
    results: Callable[[Path], dict[str, dict[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed here is what belongs there."""
    paths = (*OWN_VECTORS, *IMAGE_VECTORS, *MEDIA_VECTORS)
    table = matrix({path: results(path) for path in paths})
    with capsys.disabled():
        print(f"\n{table}")
    assert table in MATRIX.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", [*OWN_VECTORS, *FAMILY_VECTORS, *IMAGE_VECTORS, *MEDIA_VECTORS], ids=vector_name
)
def test_vectors_follow_their_schema(path: Path) -> None:
    schema = json.loads((VECTORS / "schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    for line in {repr(shape(line)): line for line in lines}.values():  # one of each shape
        validator.validate(line)


def shape(value: Any) -> Any:
    """The fields of a value and their types, and whether numbers are negative."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted({repr(shape(inner)) for inner in value}), min(len(value), 3)
    is_name = isinstance(value, str) and len(value) < NAME
    return value if is_name else (type(value).__name__, isinstance(value, int) and value < 0)


def test_every_small_model_has_image_vectors() -> None:
    assert {path.stem for path in IMAGE_VECTORS} == {*SMALL_MODELS, EMBEDDED_MODEL}


def test_vectors_cover_exact_answers_and_refusals() -> None:
    """A set of vectors that is all of one kind would prove little."""
    for path in OWN_VECTORS:
        _, cases = read_vectors(path)
        refused = sum("refused" in case["expect"] for case in cases)
        assert refused > 10, path.stem
        assert len(cases) - refused > 50, path.stem
