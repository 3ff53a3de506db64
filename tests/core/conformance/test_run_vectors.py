"""What a failing vector shows, and vectors run by any command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from comparison import differences, hash_difference
from paths import ROOT, VECTORS

from mmroute.model_directory import EMBEDDED_MODEL

EXPECTED: dict[str, Any] = {
    "token_runs": [[1, 1], [7, 3], [2, 1]],
    "placeholders": [{"offset": 1, "length": 3}],
    "mm_identifiers": ["aa"],
}
RIGHT: dict[str, Any] = {
    "exact": True,
    "token_ids": [1, 7, 7, 7, 2],
    "placeholders": [{"offset": 1, "length": 3}],
    "image_identities": ["aa"],
}


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({}, set()),
        ({"token_ids": [1, 7, 7, 2]}, {"token_ids"}),
        ({"placeholders": []}, {"placeholders"}),
        ({"image_identities": ["ab"]}, {"image_identities"}),
        ({"token_ids": [1], "placeholders": []}, {"token_ids", "placeholders"}),
        ({"exact": False, "reason": "video"}, {"exact"}),
    ],
)
def test_each_part_is_told_apart(changed: dict[str, Any], parts: set[str]) -> None:
    assert set(differences(RIGHT | changed, EXPECTED)) == parts


def test_text_around_the_first_difference_is_shown() -> None:
    answer = RIGHT | {"token_ids": [1, 7, 7, 8, 2]}
    wrong = differences(answer, EXPECTED, lambda ids: "".join(chr(96 + i) for i in ids))
    assert "index 3" in wrong["token_ids"]
    assert "'agghb'" in wrong["token_ids"]
    assert "'agggb'" in wrong["token_ids"]


def test_an_answer_to_what_the_engine_refuses_is_wrong() -> None:
    refused = {"refused": "too long"}
    assert set(differences(RIGHT, refused)) == {"exact"}
    assert not differences({"exact": False}, refused)


def test_hashes_of_which_some_are_kept() -> None:
    stored = {"n": 3, "first": ["a", "b"], "last": "c"}
    assert hash_difference(["a", "b", "c"], stored) is None
    for wrong in (["a", "b"], ["a", "x", "c"], ["a", "b", "x"], []):
        assert hash_difference(wrong, stored) is not None
    assert hash_difference([], {"n": 0, "first": [], "last": None}) is None


def ran(vectors: Path, *command: str) -> tuple[int, list[set[str]]]:
    """The exit status, and the parts that are wrong of each wrong answer."""
    runner = [
        sys.executable,
        str(ROOT / "tests" / "core" / "conformance" / "run_vectors.py"),
        str(vectors),
    ]
    ended = subprocess.run([*runner, "--", *command], capture_output=True, text=True, check=False)
    return ended.returncode, [set(json.loads(line)["wrong"]) for line in ended.stdout.splitlines()]


@pytest.mark.process
def test_a_command_runs_the_vectors(tmp_path: Path) -> None:
    vectors = VECTORS / f"{EMBEDDED_MODEL}.jsonl"
    assert ran(vectors, sys.executable, "-m", "mmroute", "tokens", EMBEDDED_MODEL) == (0, [])
    meta, line = vectors.read_text(encoding="utf-8").split("\n")[:2]
    first = tmp_path / "vectors.jsonl"
    first.write_text(f"{meta}\n{line}\n", encoding="utf-8")
    expect = json.loads(line)["expect"]
    wrong = {"id": json.loads(line)["id"], "exact": True, "token_ids": [1],
             "placeholders": expect["placeholders"]}  # fmt: skip
    assert ran(first, "echo", json.dumps(wrong)) == (1, [{"token_ids"}])
