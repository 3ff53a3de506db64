"""Traces: the simulated cache beside vLLM's own, policies beside each other, bad lines counted."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from command_line import run
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from traces.make_trace import Parameters, make_trace

from mmroute.cli import main
from mmroute.traces import workers
from mmroute.traces.block_cache import BlockCache
from mmroute.traces.page import _round_numbers
from mmroute.traces.requests import Piece, TracedItem, TracedRequest
from mmroute.traces.reuse import ReuseCurve, Timeline
from mmroute.traces.simulation import Fleet, FleetSize, Outcome, Policy
from mmroute.traces.sources import line_of_row
from mmroute.traces.suspects import Suspects

POOLS = json.loads((ROOT / "tests" / "traces" / "block_pools.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("sequence", POOLS["sequences"])
def test_blocks_are_kept_and_evicted_as_by_vllm(sequence: dict[str, Any]) -> None:
    cache = BlockCache(sequence["num_blocks"])
    for step in sequence["steps"]:
        held = cache.num_held(step["hashes"])
        rest = bool(step["rest"])
        lookup = len(step["hashes"]) - (not rest)  # the last token is computed
        cached = cache.serve(step["hashes"], lookup=lookup, ends_in_block=rest)
        assert cached == step["cached"]
        assert cached in {held, held - 1}
        assert cache.held()[:8] == step["order"]
    assert cache.held() == sequence["held"]


def test_a_prompt_larger_than_the_cache_changes_nothing() -> None:
    cache = BlockCache(3)
    cache.serve([1, 2], lookup=2, ends_in_block=True)
    before = cache.held()
    assert cache.serve([1, 2, 3, 4], lookup=3, ends_in_block=False) == 0
    assert cache.held() == before


def traced(hashes: list[int], *, ids: list[int] | None = None, **more: Any) -> TracedRequest:
    tokens = 16 * len(hashes) + 1
    return TracedRequest(line=1, num_tokens=tokens, hashes=hashes, id_hashes=ids or [], **more)


def outcome_of(policy: Policy, requests: list[TracedRequest], blocks: int, workers: int) -> Outcome:
    fleet = Fleet(policy, FleetSize(workers, blocks, 16, encoder_tokens=100))
    for request in requests:
        fleet.serve(request)
    return fleet.outcome()


def test_token_ids_alone_take_two_images_for_one() -> None:
    """Two pictures of one size: equal IDs, other blocks. By hashes each finds its worker."""
    cat = traced([1, 2, 3, 4], ids=[9, 8, 7, 6])
    dog = traced([5, 6, 7, 8], ids=[9, 8, 7, 6])
    by_ids, by_hashes = (
        outcome_of(policy, [cat, dog] * 10, blocks=5, workers=2).hit_rate
        for policy in (Policy.TOKEN_IDS, Policy.BLOCK_HASHES)
    )
    assert by_ids == 0
    assert by_hashes == pytest.approx(18 / 20 * 64 / 65)


def test_an_item_is_encoded_where_neither_its_blocks_nor_its_features_are_there() -> None:
    def of_items(hashes: list[int], *identities: int) -> TracedRequest:
        items = [TracedItem(i, end=16 * n, features=60) for n, i in enumerate(identities, 1)]
        return traced(hashes, items=items)

    requests = [
        of_items([1], 7),  # encoded
        of_items([1], 7),  # in cached blocks
        of_items([2], 7),  # in the encoder cache
        of_items([3], 8),  # encoded; 7 is evicted
        of_items([4], 7),  # encoded
    ]
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=9, workers=1)
    counts = (found.items_in_blocks, found.items_in_encoder, found.items_encoded)
    assert counts == (1, 1, 3)


def test_answers_take_room_and_are_not_found_again() -> None:
    requests = [traced([1, 2]), traced([5, 6]), traced([1, 2])]
    assert outcome_of(Policy.ROUND_ROBIN, requests, blocks=5, workers=1).hit_rate > 0
    requests[1] = traced([5, 6], output_length=48)
    found = outcome_of(Policy.ROUND_ROBIN, requests, blocks=5, workers=1)
    assert (found.hit_rate, found.too_large) == (0, 0)


@given(
    prompts=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=60),
)
def test_the_curve_is_that_of_an_lru_cache(prompts: list[tuple[int, int]]) -> None:
    """Each prompt is the beginning of one of six texts, of which two begin alike."""
    texts = [
        [t // 2 * (n < 10) + 100 * (n + 1) + t * (n >= 10) for n in range(40)] for t in range(6)
    ]
    curve = ReuseCurve(16)
    lru: list[int] = []  # the last used comes first
    found = dict.fromkeys((64, 128, 256), 0)
    for text, length in prompts:
        hashes = texts[text][:length]
        for size in found:
            found[size] += next((n for n, b in enumerate(hashes) if b not in lru[:size]), length)
        curve.add(traced(hashes))
        lru = hashes + [block for block in lru if block not in hashes]
    assert curve.different == len(lru)
    for size, rate in curve.hit_rates():
        assert rate * curve.tokens == pytest.approx(found[size] * 16)


def test_a_timeline_keeps_all_requests_in_few_bins() -> None:
    timeline = Timeline()
    for number in range(1000):
        timeline.add(traced([1], timestamp=number), cached=number % 2)
    assert len(timeline.bins) <= 120
    assert sum(each.requests for each in timeline.bins) == 1000
    assert sum(each.cached for each in timeline.bins) == 500
    assert [each.timestamp for each in timeline.bins[:2]] == [0, timeline.bins[0].requests]


@pytest.fixture(scope="module")
def model(small_model: Callable[[str], Path]) -> str:
    return str(small_model("small-qwen2.5-vl"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_trace(Parameters(requests=90, turns=3, pictures=8, systems=2, clocks=0, again=0))
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in made))
    return path


def test_the_command_compares_routings(model: str, trace: Path) -> None:
    finished = run("trace", str(trace), "--model", model, "--model-id", "org/qwen", "--json")
    assert finished.status == 0, finished.stderr
    report = json.loads(finished.stdout)
    lines = trace.read_text().splitlines()
    assert report["requests"] == len(lines) == report["items"]["image"]
    rates = {each["policy"]: each["hit_rate"] for each in report["policies"]}
    assert list(rates) == [policy.value for policy in Policy]
    assert rates["block_hashes"] > rates["session"] > rates["round_robin"]
    assert report["one_cache"][-1]["hit_rate"] >= rates["block_hashes"]
    assert report["preprocessing_us"]["p99"] > 0


def test_a_report_names_the_engine_and_its_frontend(model: str, trace: Path) -> None:
    rust = "VLLM_USE_RUST_FRONTEND=1 vllm serve org/qwen-vl"
    finished = run("trace", str(trace), "--model", model, "--engine-args", rust, "--json")
    assert json.loads(finished.stdout)["engine"] == "vllm 0.33.0, rust frontend"
    assert report_of(model, trace)["engine"] == "vllm 0.33.0"


def report_of(model: str, *arguments: str | Path) -> dict[str, Any]:
    """What `mmroute trace` reports, without what a clock says."""
    options = ("--model", model, "--model-id", "org/qwen", "--json")
    finished = run("trace", *map(str, arguments), *options)
    assert finished.status == 0, finished.stderr
    report: dict[str, Any] = json.loads(finished.stdout)
    del report["preprocessing_us"]
    for loss in report["losses"]:
        assert loss["example"].pop("command").startswith("mmroute explain ")
    return report


def test_rows_of_a_parquet_file_are_lines(model: str, trace: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in trace.read_text().splitlines()[:20]]
    rows = [line | {"messages": json.dumps(line["messages"])} for line in lines]
    rows[3]["images"] = None  # its placeholder has no image then
    path = tmp_path / "trace.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    del lines[3]["images"]
    (tmp_path / "trace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert report_of(model, path) == report_of(model, tmp_path / "trace.jsonl")


@pytest.mark.parametrize("name", ["documents", "mm_hashes", "response_format", "thinking"])
def test_a_field_that_is_no_text_may_be_json_in_a_column(name: str) -> None:
    assert json.loads(line_of_row({name: '[{"a": 1}]'})) == {name: [{"a": 1}]}


@pytest.mark.parametrize("name", ["prompt", "cache_salt", "reasoning_effort"])
def test_a_text_in_a_column_stays_as_it_is(name: str) -> None:
    assert json.loads(line_of_row({name: "[1]"})) == {name: "[1]"}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_CHUNK_LINES", 20)


@pytest.mark.usefixtures("small_chunks")
def test_a_stopped_run_goes_on_with_the_parts_that_it_finished(
    model: str, trace: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    options = ("--processes", "1", "--checkpoint", parts)
    whole = report_of(model, trace, *options)
    finished, *others = sorted(parts.glob("*.msgpack"))
    assert others
    for part in others:
        part.unlink()
    written = finished.stat().st_mtime_ns
    assert report_of(model, trace, *options) == whole
    assert finished.stat().st_mtime_ns == written
    other = tmp_path / "other.jsonl"
    other.write_text(trace.read_text().partition("\n")[0])
    refused = run("trace", str(other), "--model", model, *map(str, options))
    assert (refused.status, "trace, trace_bytes" in refused.stderr) == (2, True)


@pytest.mark.process
@pytest.mark.usefixtures("small_chunks")
def test_two_processes_give_the_numbers_of_one(model: str, trace: Path) -> None:
    assert report_of(model, trace, "--processes", "2") == report_of(
        model, trace, "--processes", "1"
    )


CLOCK = "It is 10:{:02} now. " + "Read what is on the invoice, and answer in one sentence. " * 9


def clock_lines() -> str:
    asked = {"role": "user", "content": "What does it cost?"}
    lines = [
        {"messages": [{"role": "system", "content": CLOCK.format(minute)}, asked]}
        for minute in (1, 2, 2, 3)
    ]
    return "".join(json.dumps(line) + "\n" for line in ["no secret", *lines])


def test_lost_reuse_is_named_with_an_example_that_can_be_opened(model: str, tmp_path: Path) -> None:
    path = tmp_path / "clock.jsonl"
    path.write_text(clock_lines())
    finished = run("trace", str(path), "--model", model, "--model-id", "a", "--json")
    report = json.loads(finished.stdout)
    (loss,) = report["losses"]
    assert (report["suspects"], report["explained"]) == (2, 2)
    assert (loss["cause"], loss["pairs"]) == ("system_prompt", 2)
    assert 80 < loss["tokens"] / 2 <= loss["example"]["lost_tokens"] + 16
    command = shlex.split(loss["example"]["command"])
    assert command[:2] == ["mmroute", "explain"]
    found = json.loads(run(*command[1:], "--json").stdout)
    assert (found["cause"], found["lost_tokens"]) == (
        "system_prompt",
        loss["example"]["lost_tokens"],
    )


@pytest.mark.parametrize("beginning", ["It is 10:{}. ", "The time in this place is 10:{} now. "])
def test_a_loss_is_explained_by_the_request_with_most_in_common(
    model: str, tmp_path: Path, beginning: str
) -> None:
    """The last request is the first one with a salt; another clock came between them."""

    def line(minute: int, **more: str) -> str:
        text = beginning.format(minute) + CLOCK.partition("now. ")[2]
        return json.dumps({"messages": [{"role": "system", "content": text}], **more}) + "\n"

    losses = []
    for between in ("", line(2)):
        path = tmp_path / "trace.jsonl"
        path.write_text(line(1) + between + line(1, cache_salt="b"))
        report = json.loads(run("trace", str(path), "--model", model, "--json").stdout)
        (loss,) = (each for each in report["losses"] if each["cause"] == "cache_salt")
        assert f"{path}#1" in shlex.split(loss["example"]["command"])
        losses.append(loss["tokens"])
    assert losses[0] == losses[1] > 80


def test_prompts_are_not_in_a_report_unless_asked_for(model: str, tmp_path: Path) -> None:
    path, page = tmp_path / "clock.jsonl", tmp_path / "page.html"
    path.write_text(clock_lines())
    options = ("trace", str(path), "--model", model, "--model-id", "a", "--html", str(page))
    for more in ((), ("--json",)):
        without = run(*options, *more).stdout + page.read_text()
        shown = run(*options, *more, "--show-text").stdout
        for text in ("Read what", "10:0", "found str"):
            assert text not in without
            assert text in shown
            assert text in page.read_text()


class _Page(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert tag not in {"script", "link", "img"}, "the page must need nothing but itself"
        assert not {"src", "href"} & dict(attributes).keys()


def test_a_report_and_an_explanation_are_pages_that_need_nothing(
    model: str, tmp_path: Path
) -> None:
    path, page = tmp_path / "clock.jsonl", tmp_path / "page.html"
    path.write_text(clock_lines())
    run("trace", str(path), "--model", model, "--html", str(page))
    shown = _Page(page)
    assert shown.tags["svg"] == 4  # curve, routing, over time, losses
    assert shown.tags["polyline"] == 1 + 3
    run("explain", model, f"{path}#2", f"{path}#3", "--html", str(page))
    assert _Page(page).tags["span"] > 20
    assert "system_prompt" in page.read_text()


@pytest.mark.parametrize(
    ("end", "numbers"),
    [
        (3.4, [0, 1, 2, 3]),
        (0.7, [0, 0.2, 0.4, 0.6]),
        (24, [0, 5, 10, 15, 20]),
        (120, [0, 20, 40, 60, 80, 100, 120]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_numbers(end: float, numbers: list[float]) -> None:
    assert _round_numbers(end) == pytest.approx(numbers)


def test_suspects_are_drawn_by_what_they_may_have_lost() -> None:
    suspects = Suspects(16)
    for line in range(0, 3000, 3):
        pieces = [Piece(line, 8), Piece(line + 1, 16 * (1 + line % 7))]
        changed = [Piece(line + 2, 8), pieces[1]]
        for at, each in enumerate((pieces, changed)):
            request = traced([line, line + at], pieces=each)
            suspects.add(msgspec.structs.replace(request, line=line + at + 1), num_cached=0)
    assert len(suspects) == 1000
    assert {each.stands_for for each in suspects.drawn(1000)} == {1}
    drawn = suspects.drawn(100)
    assert len(drawn) == 100
    lost = sum(each.stands_for * (2 + (each.first - 1) % 7) for each in drawn)
    assert lost == pytest.approx(sum(2 + line % 7 for line in range(0, 3000, 3)), rel=0.25)


def test_lines_without_an_exact_answer_are_counted_by_reason(
    model: str, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    no_uuid = '{"messages": [{"role": "user", "content": [{"type": "image"}]}], "images": [%s]}'
    bad = ["nonsense", no_uuid % '{"width": 64, "height": 64}', '{"prompt": ""}']
    path.write_text("\n".join([trace.read_text().splitlines()[0], *bad]))
    report = json.loads(run("trace", str(path), "--model", model, "--json").stdout)
    assert report["requests"] == 1
    assert report["refused"] == {
        "invalid_request": {"count": 1, "lines": [2]},
        "image_identity_unknown": {"count": 1, "lines": [3]},
        "empty_prompt": {"count": 1, "lines": [4]},
    }


def test_lines_of_mooncake_need_no_model(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 9, "input_length": 1600, "output_length": 5, "hash_ids": [1, 2, 4, 5]},
        {"timestamp": 9, "input_length": "many", "hash_ids": []},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = json.loads(run("trace", str(path), "--json").stdout)
    assert (report["block_size"], report["blocks"], report["different_blocks"]) == (512, 5, 3)
    assert report["refused"] == {"invalid_request": {"count": 1, "lines": [3]}}
    assert report["output_tokens"] == 10
    assert report["engine"] is None
    assert [each["policy"] for each in report["policies"]] == [
        "round_robin", "least_load", "block_hashes",
    ]  # fmt: skip
    assert run("trace", str(path)).stdout.startswith("2 requests with an exact answer")


def test_errors_are_told_once_and_as_json_where_it_is_asked_for(tmp_path: Path) -> None:
    path, missing = tmp_path / "trace.jsonl", str(tmp_path / "missing.jsonl")
    path.write_text('{"id": "a", "prompt": "x"}\n' * 5)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"input_length": "many", "hash_ids": []}\n')
    model = "pixtral-12b-2409"
    for arguments, status, reason, message in (
        (("trace", missing), 2, "os_error", "missing.jsonl"),
        (("trace", str(path)), 2, "usage", "give --model"),
        (("trace", str(bad)), 1, "invalid_request", "no line has an exact answer"),
        (("explain", model, missing, str(path)), 2, "os_error", "missing.jsonl"),
        (("explain", model, str(path), f"{path}:b"), 2, "usage", "no request with id b"),
        (("explain", model, str(bad), str(path)), 1, "invalid_request", "has an exact answer"),
    ):
        finished = run(*arguments, "--json")
        error = json.loads(finished.stdout)["error"]
        assert (finished.status, error["reason"]) == (status, reason)
        assert message in error["message"]
        plain = run(*arguments)
        assert (plain.status, plain.stdout) == (status, "")
        assert plain.stderr.count(message) == 1


def test_ray_is_an_extra(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["trace", str(trace), "--model", "nowhere", "--ray"]) == 1
    assert "ray not installed: pip install '.[ray]'" in capsys.readouterr().err
