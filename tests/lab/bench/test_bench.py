"""``mmroute bench``, and the requests of the benchmarks. Never how long anything takes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run

from benchmarks.mixes import MIXES, chat_request
from benchmarks.words import english, unseen
from mmroute import ImageSize, MmrouteError, Normalizer
from mmroute.answering.stages import Stage, Stopwatch
from mmroute.lab.cli.bench import measure
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.request import Request

IMAGE = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "this is"}]}
SIZE = {"width": 64, "height": 48}


def write_lines(path: Path, *lines: dict[str, Any] | str) -> str:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return str(path)


def test_the_requests_of_a_file_are_measured(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "own.jsonl",
        {"id": "a", "messages": [IMAGE], "images": [SIZE | {"uuid": "one"}]},
        {"id": "unnamed", "messages": [IMAGE], "images": [SIZE]},
        {"id": "no-size", "messages": [IMAGE]},
        "not JSON",
        "",
        {"id": "b", "prompt": "the picture"},
    )
    arguments = ("bench", str(small_model("small-qwen2.5-vl")), "--input", path)
    engine = "PYTHONHASHSEED=0 vllm serve --prefix-caching-hash-algo xxhash --block-size 16"
    options = ("--engine-args", engine, "--repeat", "3")
    report = json.loads(run(*arguments, *options, "--json").stdout)
    assert (report["requests"], report["items"], len(report["passes"])) == (3, 2, 3)
    assert report["inexact"]["reasons"] == {"image_count_mismatch": 1, "invalid_request": 1}
    assert [e["where"] for e in report["inexact"]["examples"]] == ["no-size", "line 4"]
    assert report["memory_bytes"] > 0
    for each in report["passes"]:
        times = each["microseconds"]
        assert {stage.value for stage in Stage} - {"hash"} < times.keys()
        for found in times.values():
            assert 0 <= found["p50"] <= found["p95"] <= found["p99"]
        assert times["whole request"]["p50"] > 0
        assert times["+ hash"]["p50"] > 0
        assert each["unhashed"] == {"image_identity_unknown": 1}
        assert each["per_second"] > 0
    shown = run(*arguments).stdout
    for words in ("own.jsonl", "no-size", "requests a second on one core"):
        assert (words in shown) == (words != "own.jsonl")


def test_a_file_without_an_exact_answer_is_a_failure(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "bad.jsonl", {"prompt": ""})
    finished = run("bench", str(small_model("small-qwen2.5-vl")), "--input", path)
    assert finished.status == 1
    assert "empty_prompt 1" in finished.stdout
    Path(path).write_text("")
    finished = run("bench", str(small_model("small-qwen2.5-vl")), "--input", path)
    assert finished.status != 0
    assert "has no line" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "nowhere.jsonl"], "there is no file nowhere.jsonl"),
        ([], "--input"),
        (["--input", "x", "--encoder", "fast"], "fastokens"),
        (["--input", "x", "--repeat", "0"], "--repeat: must be an integer of at least 1"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str) -> None:
    finished = run("bench", EMBEDDED_MODEL, *arguments)
    assert (finished.status, finished.stdout) == (2, "")
    assert words in finished.stderr


def test_a_wrong_answer_is_no_result(normalizer: Callable[[str], Normalizer]) -> None:
    right, other = (normalizer(f"small-{name}-vl") for name in ("qwen2.5", "qwen3"))
    request = Request(**chat_request(0, words=3, images=[(640, 480)]))
    asked = [(request, right.answer(request))]
    with pytest.raises(MmrouteError, match="differs from that of the reference"):
        list(measure(other, asked, repeat=1))


def test_watches_change_no_answer(normalizer: Callable[[str], Normalizer]) -> None:
    for name in ("small-qwen2.5-vl", "small-phi-3.5-vision", "small-gemma-3", EMBEDDED_MODEL):
        plain = normalizer(name)
        watch = Stopwatch()
        request = chat_request(3, words=10, images=[(64, 48), (90, 40)])
        timed = replace(plain, watch=watch)
        routing, right = timed.normalize(**request), plain.normalize(**request)
        assert np.array_equal(routing.token_ids, right.token_ids)
        assert routing.placeholders == right.placeholders
        assert {Stage.RENDER, Stage.COUNT, Stage.PLACE} <= watch.spent().keys()
        assert all(spent >= 0 for spent in watch.spent().values())


def test_overrides_are_counted_too(normalizer: Callable[[str], Normalizer]) -> None:
    watch = Stopwatch()
    timed = replace(normalizer("small-qwen2.5-vl"), watch=watch)
    request = chat_request(0, words=4, images=[(640, 480)])
    usual = timed.normalize(**request)
    watch.start()
    changed = timed.normalize(**request, mm_processor_kwargs={"max_pixels": 50176})
    assert len(changed.token_ids) < len(usual.token_ids)
    assert watch.spent()[Stage.COUNT] > 0


def test_a_refusal_passes_through_the_watches(normalizer: Callable[[str], Normalizer]) -> None:
    plain = normalizer("small-qwen2.5-vl")
    request: dict[str, Any] = {"prompt": "a", "images": [ImageSize(64, 48)]}
    refused, right = (n.normalize(**request) for n in (replace(plain, watch=Stopwatch()), plain))
    assert (refused.reason, refused.message) == (right.reason, right.message)


def test_every_mix_has_other_requests_each_time() -> None:
    for mix in MIXES.values():
        first, again, second = mix.request(0), mix.request(0), mix.request(1)
        assert first == again, "the same in every run"
        assert first["messages"][-1] != second["messages"][-1]
    before = MIXES["conversation"].before()[0]["messages"]
    assert MIXES["conversation"].request(7)["messages"][: len(before)] == before
    chooser = random.Random(0)
    assert len(set(english(chooser, 1000).split())) > 200
    assert len(set(unseen(chooser, 1000).split())) > 990
