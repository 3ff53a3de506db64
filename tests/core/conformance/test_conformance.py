"""vLLM's own answers, case by case.

``vectors`` holds answers for small models that this repository builds itself, and for the embedded
model. Vectors of real models run where MMROUTE_VECTORS names their directory, and vectors of
further families where MMROUTE_SMALL_VECTORS does, of text models where MMROUTE_TEXT_VECTORS does.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from comparison import read_vectors
from conformance import load_as_served, matrix, own_fingerprint
from image_vectors import IMAGE_VECTORS, wrong_parts
from paths import ROOT, VECTORS, real_models
from small_models import (
    FAMILY_MODELS,
    MEDIA_ANSWERED,
    SMALL_MODELS,
    fingerprint,
    media_model,
    write_model,
)

from mmroute import Normalizer
from mmroute.health.self_check import check_model
from mmroute.model_directory import EMBEDDED_MODEL

pytestmark = pytest.mark.conformance

MATRIX = ROOT / "docs" / "conformance.md"
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
    for line in path.read_text(encoding="utf-8").splitlines():
        validator.validate(json.loads(line))


def test_every_small_model_has_image_vectors() -> None:
    assert {path.stem for path in IMAGE_VECTORS} == {*SMALL_MODELS, EMBEDDED_MODEL}


def test_vectors_cover_exact_answers_and_refusals() -> None:
    """A set of vectors that is all of one kind would prove little."""
    for path in OWN_VECTORS:
        _, cases = read_vectors(path)
        refused = sum("refused" in case["expect"] for case in cases)
        assert refused > 10, path.stem
        assert len(cases) - refused > 50, path.stem


def _real_vectors(variable: str) -> list[Path]:
    root = os.environ.get(variable)
    if not root:
        return []
    found = sorted(Path(root).glob("*.jsonl"))
    assert found, f"{variable} is {root}, which holds no vectors"
    return found


SMALL_VECTORS = _real_vectors("MMROUTE_SMALL_VECTORS")
TEXT_VECTORS = _real_vectors("MMROUTE_TEXT_VECTORS")
LARGE_VECTORS = [*_real_vectors("MMROUTE_VECTORS"), *_real_vectors("MMROUTE_IMAGE_VECTORS")]
LARGE_VECTORS.sort(key=lambda path: path.stem)  # those of one model follow each other
REAL_VECTORS = [*LARGE_VECTORS, *SMALL_VECTORS, *TEXT_VECTORS]
# The engine answers these, but by what its processor cache holds: images share a budget there.
ANSWERED_BY_CHANCE = {"nemotron-nano-omni-v3": {"edge-2040x2040-2048x2048": "budget_exceeded"}}
# The engine's tokenizer class is none for this byte-level vocabulary, and loses spaces.
UNHEALTHY = {"deepseek-r1-distill-llama-synthetic": "text: "}


def directory_of(path: Path) -> Path:
    """The model directory that a file of real vectors is of."""
    variable = "MMROUTE_SMALL_MODELS" if path in SMALL_VECTORS else "MMROUTE_MODELS"
    if path in TEXT_VECTORS:
        variable = "MMROUTE_TEXT_MODELS"
    models = real_models(variable)
    assert models is not None, f"vectors of real models need {variable}"
    directory = models / path.stem
    assert directory.is_dir(), directory
    return directory


if REAL_VECTORS:

    @pytest.mark.models
    @pytest.mark.parametrize(
        "path", REAL_VECTORS, ids=lambda path: f"{path.parent.name}/{path.stem}"
    )
    def test_real_vectors(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """vLLM's answers; and the model is healthy, which is asked here since it is loaded."""
        meta, cases = read_vectors(path)
        model = load_as_served(directory_of(path), meta)
        failures = check_model(model.model).failures
        assert failures.startswith(UNHEALTHY.get(path.stem, "")), failures
        assert bool(failures) == (path.stem in UNHEALTHY), failures
        wrong = {c["id"]: d for c in cases if (d := wrong_parts(model, c))}
        for case_id, reason in ANSWERED_BY_CHANCE.get(path.stem, {}).items():
            assert wrong.pop(case_id)["exact"].startswith(f"inexact ({reason}:")
        kinds: dict[str, list[bool]] = defaultdict(list)
        for case in cases:
            for tag in case["tags"]:
                kinds[tag].append(case["id"] not in wrong)
        with capsys.disabled():
            shown = ", ".join(f"{k} {sum(v)}/{len(v)}" for k, v in sorted(kinds.items()))
            print(f"\n{path.stem}: {len(cases) - len(wrong)}/{len(cases)} ({shown})")
        assert not wrong, json.dumps(wrong, indent=1)
