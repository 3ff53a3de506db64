"""``mmroute bench``, and what it is made of. Never how long anything takes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmroute import FastPaths, ImageSize, MmrouteError, Normalizer
from mmroute.answering.stages import Stage, Stopwatch
from mmroute.cli import main
from mmroute.lab.bench.answering import Answering
from mmroute.lab.bench.children import Child
from mmroute.lab.bench.latency import Hashing, Latency, measure_latency
from mmroute.lab.bench.mixes import MIXES, Mix, chat_request, conversation, read_mix
from mmroute.lab.bench.throughput import throughput_of
from mmroute.lab.bench.words import english, unseen
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.reuse.fast_paths import REFERENCE_ONLY

QUICK = ("--repeat", "2", "--processes", "1")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = main(["bench", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def write_lines(path: Path, *lines: dict[str, Any] | str) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


class Here(Child):
    """Answers in this process."""

    def __init__(self, name: str, load: Callable[[], Normalizer]) -> None:
        self.name = name
        self.answering = Answering(load, asdict(Hashing()))
        self.found: list[Any] = []

    def send(self, *lines: Any) -> None:
        for command, *arguments in json.loads(json.dumps(lines, default=asdict)):
            self.found.append(getattr(self.answering, command)(*arguments))

    def receive(self) -> Any:
        return json.loads(json.dumps(self.found.pop(0)))


@pytest.mark.process
def test_a_report_for_machines(small_model: Callable[[str], Path], run: Run) -> None:
    model = small_model("small-qwen2.5-vl")
    options = ("--mix", "chat", "--algorithm", "xxhash", "--json")
    status, out, err = run(model, *QUICK, "--processes", 2, *options)
    assert status == 0
    assert "chat: latency of 2 requests" in err
    report = json.loads(out)
    assert report["hashing"]["algorithm"] == "xxhash"
    assert report["machine"]["versions"]["mmroute"]
    (mix,) = report["mixes"]
    assert mix["images"] == 1
    assert mix["inexact"] == {"count": 0, "reasons": {}, "examples": []}
    stages = mix["stages_us"]
    assert {"parse", "render", "encode", "count", "place", "identify", "hash"} <= stages.keys()
    for times in (mix["whole_us"], mix["without_encoding_us"], *stages.values()):
        assert 0 < times["p50"] <= times["p95"] <= times["p99"]
        assert times["samples"] == 2
    assert 4 <= mix["throughput"]["requests"] <= 40
    assert mix["throughput"]["per_second"] > 0
    assert mix["throughput"]["distinct"]
    startup = report["startup"]
    assert 0 < startup["load_seconds"] <= startup["ready_seconds"]
    assert startup["rss_loaded_bytes"] > startup["rss_imported_bytes"] > 0


def test_mistral_common_renders_and_encodes_in_one_go(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = Here("it", lambda: normalizer(EMBEDDED_MODEL))
    small = Mix("small", "", partial(chat_request, words=20, images=[(64, 48)]))
    found = measure_latency(model, model, small, repeat=1)
    assert {Stage.RENDER, Stage.COUNT} <= found.stages_us.keys()
    assert Stage.ENCODE not in found.stages_us


@pytest.mark.process
def test_a_report_for_people_with_requests_of_ones_own(
    small_model: Callable[[str], Path], tmp_path: Path, run: Run
) -> None:
    image = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "this is"}]}
    path = write_lines(
        tmp_path / "own.jsonl",
        {"id": "a", "messages": [image], "images": [{"width": 64, "height": 48}]},
        {"id": "no-size", "messages": [image]},
        "not JSON",
        "",
        {"id": "b", "prompt": "the picture"},
    )
    status, out, _ = run(small_model("small-qwen2.5-vl"), *QUICK, "--input", path)
    assert status == 0
    assert "own.jsonl: 2 requests of a file" in out
    assert "2 inexact, not timed:" in out
    assert "no-size: image_count_mismatch: `images` has no size" in out
    assert "line 3: invalid_request" in out
    assert "no block hashes: image_identity_unknown" in out
    assert "some of them more than once" in out
    assert "in a fresh process:" in out


@pytest.mark.process
def test_inexact_requests_are_counted_with_their_reasons(
    small_model: Callable[[str], Path], tmp_path: Path, run: Run
) -> None:
    bad = {"prompt": "a", "images": [{"width": 64, "height": 48}]}
    path = write_lines(tmp_path / "bad.jsonl", bad, bad, {"prompt": ""})
    status, out, _ = run(small_model("small-qwen2.5-vl"), *QUICK, "--input", path, "--json")
    assert status == 1
    (mix,) = json.loads(out)["mixes"]
    assert "whole_us" not in mix
    assert mix["inexact"]["reasons"] == {"placeholder_count_mismatch": 2, "empty_prompt": 1}
    assert mix["inexact"]["examples"][0]["where"] == "line 1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "nowhere.jsonl"], "there is no file nowhere.jsonl"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str, run: Run) -> None:
    status, out, err = run(EMBEDDED_MODEL, *arguments)
    assert (status, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mix", "chatt"], "Did you mean 'chat'?"),
        (["--mix", "chat", "--input", "x"], "not allowed with"),
        (["--encoder", "fast"], "fastokens"),
        (["--repeat", "0"], "--repeat: must be an integer of at least 1, found '0'"),
        (["--processes", "-1"], "--processes: must be"),
        (["--block-size", "0"], "--block-size: must be"),
    ],
)
def test_arguments_that_are_none(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", EMBEDDED_MODEL, *arguments]) == 2
    assert words in capsys.readouterr().err


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
    refused = replace(plain, watch=Stopwatch()).normalize(**request)
    assert (refused.reason, refused.message) == (
        plain.normalize(**request).reason,
        plain.normalize(**request).message,
    )


def test_caches_that_took_part_are_named(small_model: Callable[[str], Path]) -> None:
    load = partial(Normalizer.from_pretrained, small_model("small-qwen2.5-vl"))
    timed = Here("timed", lambda: load(fast_paths=FastPaths("tokenizers")))
    reference = Here("reference", lambda: load(fast_paths=REFERENCE_ONLY))

    def measured(mix: Mix) -> Latency:
        return measure_latency(timed, reference, mix, repeat=2)

    fresh = measured(Mix("fresh", "", partial(chat_request, words=300)))
    assert fresh.text_reuse is not None
    assert (fresh.text_reuse.hits, fresh.text_reuse.misses) == (0, 2)
    branches = Mix("chat", "", lambda n: conversation(0, 3, branch=n), lambda: [conversation(0, 2)])
    known = measured(branches)
    assert known.text_reuse is not None
    assert (known.text_reuse.hits, known.text_reuse.misses) == (2, 0)


def test_a_wrong_answer_is_no_result(normalizer: Callable[[str], Normalizer]) -> None:
    right, other = (
        Here(name, partial(normalizer, f"small-{name}-vl")) for name in ("qwen2.5", "qwen3")
    )
    mix = Mix("large", "", partial(chat_request, words=3, images=[(640, 480)]))
    with pytest.raises(MmrouteError, match="give different answers to request 0"):
        measure_latency(right, other, mix, repeat=1)
    with pytest.raises(MmrouteError, match="give different answers to request 0"):
        throughput_of([(right, other)], mix, requests=2)


def test_every_mix_has_other_requests_each_time() -> None:
    for mix in MIXES.values():
        first, again, second = mix.request(0), mix.request(0), mix.request(1)
        assert first == again, "the same in every run"
        assert first != second
        assert first["messages"][-1] != second["messages"][-1]
    before = MIXES["conversation"].before()[0]["messages"]
    turn = MIXES["conversation"].request(7)["messages"]
    assert turn[: len(before)] == before
    assert 90_000 < sum(len(message["content"]) for message in turn) < 110_000


def test_words() -> None:
    chooser = random.Random(0)
    text = english(chooser, 1000)
    assert len(text.split()) == 1000
    assert text[0].isupper()
    assert text.endswith(".")
    assert len(set(text.split())) > 200
    assert len(set(unseen(chooser, 1000).split())) > 990


def test_a_file_of_requests(normalizer: Callable[[str], Normalizer], tmp_path: Path) -> None:
    path = tmp_path / "bom.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "the picture", "cache_salt": "t"}\r\n\n')
    mix = read_mix(path, normalizer("small-qwen2.5-vl"))
    assert mix.distinct == 1
    assert mix.request(0) == mix.request(5)
    assert mix.request(0)["cache_salt"] == "t"
    routing = normalizer("small-qwen2.5-vl").normalize(**mix.request(0))
    assert routing.cache_salt == "t"
