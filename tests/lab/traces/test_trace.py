"""``mmroute trace``: policies beside each other, lost reuse by name, bad lines counted."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from command_line import run
from traces.make_trace import Parameters, make_trace

from mmroute.cli import main
from mmroute.lab.traces import workers
from mmroute.lab.traces.simulation import Policy
from mmroute.lab.traces.sources import line_of_row


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
    path = tmp_path / "clock.jsonl"
    path.write_text(clock_lines())
    options = ("trace", str(path), "--model", model, "--model-id", "a")
    for more in ((), ("--json",)):
        without = run(*options, *more).stdout
        shown = run(*options, *more, "--show-text").stdout
        for text in ("Read what", "10:0", "found str"):
            assert text not in without
            assert text in shown


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
