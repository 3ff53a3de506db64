"""``mmroute doctor --vectors``: a few recorded answers as one more check of a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from recorded_answers import without_arguments
from small_models import Files

from mmroute import MmrouteError, Normalizer
from mmroute.health.self_check import HealthReport, check_model, load_and_check
from mmroute.lab.parity.oracles.vectors import check_recorded
from mmroute.model_directory import EMBEDDED_MODEL

QWEN = "small-qwen2.5-vl"


def failure(report: HealthReport) -> str:
    (failed,) = (check for check in report.checks if not check.ok)
    assert failed.name == "vectors"
    return failed.detail


@pytest.mark.parametrize("name", [QWEN, EMBEDDED_MODEL])
def test_the_recorded_answers_are_ours(
    name: str, normalizer: Callable[[str], Normalizer], tmp_path: Path
) -> None:
    recorded = partial(check_recorded, path=without_arguments(name, tmp_path))
    report = check_model(normalizer(name).model, recorded)
    assert report.healthy, report.failures
    assert "vectors" in {check.name for check in report.checks}


def test_a_model_of_another_vocabulary_answers_otherwise(
    changed_model: Callable[[str, Callable[[Files], None]], Path], tmp_path: Path
) -> None:
    def change(files: Files) -> None:
        vocabulary = files["tokenizer.json"]["model"]["vocab"]
        vocabulary["e"], vocabulary["t"] = vocabulary["t"], vocabulary["e"]

    path = changed_model(QWEN, change)
    report = load_and_check(path, partial(check_recorded, path=without_arguments(QWEN, tmp_path)))
    assert "not vllm 0.33.0's answer" in failure(report)


def test_vectors_that_are_none(normalizer: Callable[[str], Normalizer], tmp_path: Path) -> None:
    with pytest.raises(MmrouteError):
        check_model(normalizer(QWEN).model, partial(check_recorded, path=tmp_path / "none.jsonl"))
    empty = tmp_path / "empty.jsonl"
    meta = {"kind": "meta", "model": QWEN, "backend": "vllm", "backend_version": "0.33.0"}
    empty.write_text(json.dumps(meta), encoding="utf-8")
    assert "no request" in failure(
        check_model(normalizer(QWEN).model, partial(check_recorded, path=empty))
    )
