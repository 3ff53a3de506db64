"""``mmroute spec check --oracle``: what a spec does with each field of a model's files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from paths import ROOT

from mmroute.lab.specs.field_changes import Change
from mmroute.lab.specs.field_checks import FieldResult, field_results

SPEC = ROOT / "model_specs" / "qwen2_5_vl.toml"
FILE = "preprocessor_config.json"
UNCHANGED = {"verdict": "right", "requests": {"image": ["right", 9, 9]}, "prompts": "a"}


def answer(verdict: str, theirs: int | str, ours: int | str, prompts: str = "b") -> dict[str, Any]:
    return {"verdict": verdict, "requests": {"image": [verdict, theirs, ours]}, "prompts": prompts}


def change(field: str, what: str) -> Change:
    return Change(FILE, field, what, {})


ANSWERS = [
    (change("patch_size", "14 -> 28"), answer("right", 5, 5)),
    (change("patch_size", "null"), answer("refused", 9, "invalid_config_field: patch_size")),
    (change("resample", "3 -> 0"), answer("right", 9, 9, "a")),
    (change("resample", "dropped"), answer("right", 9, 9, "a")),
    (change("merge_size", "null"), answer("neither", "TypeError: None", "image_refused: no")),
    (
        change("size", "dropped"),
        {"verdict": "loaded", "requests": {}, "vllm": "KeyError: 'size'"},
    ),
]
SILENT = (change("do_pad", "True -> False"), answer("silent", 9, 12))


def test_results_are_by_field_and_the_wrong_ones_first() -> None:
    assert field_results(UNCHANGED, [*ANSWERS, SILENT]) == [
        FieldResult(
            f"{FILE}:do_pad", "silent", ["True -> False"], "image: vLLM 9 tokens, mmroute 12 tokens"
        ),
        FieldResult(
            f"{FILE}:patch_size", "refused", ["null"],
            "image: vLLM 9 tokens, mmroute invalid_config_field: patch_size",
        ),
        FieldResult(f"{FILE}:size", "loaded", ["dropped"], "vLLM KeyError: 'size'"),
        FieldResult(f"{FILE}:merge_size", "unanswered", ["null"]),
        FieldResult(f"{FILE}:patch_size", "followed", ["14 -> 28"]),
        FieldResult(f"{FILE}:resample", "idle", ["3 -> 0", "dropped"]),
    ]  # fmt: skip


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Change, dict[str, Any]]]:
    """The answers of an engine and a spec, in place of those that vLLM would give."""
    answers = [*ANSWERS]

    class Checks:
        def __init__(self, base: Path, resolve: Callable[[Path], Any], **_: Any) -> None:
            assert resolve(base).family.family == "qwen2.5-vl"  # by the file, on a copy
            self.unchanged, self.changes = UNCHANGED, [change for change, _ in answers]

        def answers(self, wanted: Sequence[Change]) -> Iterator[tuple[Change, dict[str, Any]]]:
            assert len(wanted) == len(answers)
            return iter(answers)

    monkeypatch.setattr("mmroute.lab.cli.spec.prepare_vllm", lambda _: None)
    monkeypatch.setattr("mmroute.lab.cli.spec.FieldChecks", Checks)
    return answers


def test_a_wrong_field_fails_the_check(
    told: list[tuple[Change, dict[str, Any]]], small_model: Callable[[str], Path]
) -> None:
    command = ("spec", "check", str(SPEC), "--model", str(small_model("small-qwen2.5-vl")))
    right = run(*command, "--oracle")
    assert right.status == 0, right.stderr
    assert "1 refused, 1 loaded, 1 unanswered, 1 followed, 1 idle" in right.stdout
    told.append(SILENT)
    wrong = run(*command, "--oracle", "--json")
    assert wrong.status == 1
    assert json.loads(wrong.stdout)["fields"][0] == {
        "place": f"{FILE}:do_pad",
        "result": "silent",
        "changes": ["True -> False"],
        "differs": "image: vLLM 9 tokens, mmroute 12 tokens",
    }


def test_it_needs_a_directory(tmp_path: Path) -> None:
    for more in ((), ("--model", "org/name"), ("--model", str(tmp_path / "none"))):
        asked = run("spec", "check", str(SPEC), "--oracle", *more)
        assert asked.status == 2
        assert "give --model DIR" in asked.stderr


def test_it_says_that_vllm_is_not_here(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    model = str(small_model("small-qwen2.5-vl"))
    asked = run("spec", "check", str(SPEC), "--model", model, "--oracle")
    assert asked.status == 1
    assert "install mmroute into the environment of vLLM 0.33" in asked.stderr
