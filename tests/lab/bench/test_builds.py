"""``benchmarks/builds.py``. Never how long anything takes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.builds import build_of, main, ratio_of
from mmroute.model_directory import EMBEDDED_MODEL

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.mark.process
def test_two_settings_in_one_run(small_model: Callable[[str], Path], run: Run) -> None:
    compared = ("encoder=tokenizers,text_cache_bytes=0", "chat_cache_bytes=0")
    options = ("--mix", "chat", "--repeat", 12, "--json")
    status, out, _ = run(small_model("small-qwen2.5-vl"), *compared, *options)
    assert status == 0
    report = json.loads(out)
    assert report["builds"][0]["fast_paths"] == {"encoder": "tokenizers", "text_cache_bytes": 0}
    (mix,) = report["mixes"]
    assert mix["ratios"].keys() == {"whole", "without encoding", "block hashes"}
    assert [ratio["pairs"] for ratio in mix["ratios"].values()] == [6, 6, 12]
    for ratio in mix["ratios"].values():
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]


def build_that(tmp_path: Path, name: str, lines: str) -> Path:
    """Stands for an interpreter of a build that does something else."""
    path = tmp_path / name
    python, program = map(shlex.quote, (sys.executable, f"import json, sys\n{lines}"))
    path.write_text(f"#!/bin/sh\nexec {python} -c {program}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.process
def test_builds_with_other_answers_are_not_compared(tmp_path: Path, run: Run) -> None:
    answer = "print(json.dumps({'digest': '%s', 'hashes': ''}), flush=True)"
    first, second = (
        build_that(tmp_path, name, f"for line in sys.stdin: {answer % name}") for name in "ab"
    )
    options = ("--mix", "text", "--repeat", 1)
    status, _, err = run(EMBEDDED_MODEL, first, second, *options)
    assert status == 1
    assert f"text: {first} and {second} give different answers to request 0" in err
    ended = build_that(tmp_path, "ended", "")
    status, _, err = run(EMBEDDED_MODEL, first, ended, *options)
    assert status == 1
    assert "a measured process ended early" in err


def test_what_can_be_compared(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mmroute").mkdir()
    (tmp_path / "mmroute" / "__init__.py").touch()
    assert build_of(str(tmp_path)).tree == str(tmp_path)
    assert build_of(sys.executable).python == sys.executable
    assert build_of("text_cache_bytes=0").fast_paths == {"text_cache_bytes": 0}
    for wrong, words in (("nothing", "no interpreter"), ("encoder=fast", "encoder must be one of")):
        with pytest.raises(SystemExit, match="2"):
            run(EMBEDDED_MODEL, wrong, tmp_path)
        assert words in capsys.readouterr().err


def test_the_interval_of_a_ratio() -> None:
    pairs = [(1000, 2000 + number) for number in range(100)]
    ratio = ratio_of(pairs)
    # Of 100 values the median is between the 40th and the 61st, 19 times of 20.
    assert (ratio.low, ratio.median, ratio.high) == (2.04, 2.0495, 2.059)
    assert (ratio.least, ratio.medians, ratio.pairs) == ((1.0, 2.0), (1.0, 2.05), 100)
    assert ratio_of([(1000, 500)]).low == ratio_of([(1000, 500)]).high == 0.5
