"""``mmroute trace``: policies beside each other, lost reuse by name, bad lines counted."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run
from traces.make_trace import Parameters, make_trace

from mmroute.cli import main
from mmroute.lab.traces.simulation import Policy


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
    rust = "VLLM_USE_RUST_FRONTEND=1 vllm serve org/qwen-vl"
    finished = run("trace", str(trace), "--model", model, "--engine-args", rust, "--json")
    assert finished.status == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert report["engine"] == "vllm 0.33.0, rust frontend"
    lines = trace.read_text().splitlines()
    assert report["requests"] == len(lines) == report["items"]["image"]
    rates = {each["policy"]: each["hit_rate"] for each in report["policies"]}
    assert list(rates) == [policy.value for policy in Policy]
    assert report["best_hit_rate"] >= rates["block_hashes"] > rates["session"]
    assert rates["session"] > rates["round_robin"]
    curve = [each["hit_rate"] for each in report["one_cache"]]
    assert curve == sorted(curve)
    assert curve[-1] == pytest.approx(report["best_hit_rate"])


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


def test_a_loss_is_explained_by_the_request_with_most_in_common(model: str, tmp_path: Path) -> None:
    """The last request is the first one with a salt; another clock came between them."""

    def line(minute: int, **more: str) -> str:
        text = CLOCK.format(minute)
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
        for text in ("10:0", "found str"):
            assert text not in without
            assert text in shown


def test_lines_without_an_exact_answer_are_counted_by_reason(
    model: str, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    no_uuid = '{"messages": [{"role": "user", "content": [{"type": "image"}]}], "images": [%s]}'
    bad = [
        "nonsense",
        no_uuid % '{"width": 64, "height": 64}',
        '{"prompt": ""}',
        '{"prompt": "a", "output_length": "many"}',
    ]
    path.write_text("\n".join([trace.read_text().splitlines()[0], *bad]))
    report = json.loads(run("trace", str(path), "--model", model, "--json").stdout)
    assert report["requests"] == 1
    assert report["refused"] == {
        "invalid_request": {"count": 2, "lines": [2, 5]},
        "image_identity_unknown": {"count": 1, "lines": [3]},
        "empty_prompt": {"count": 1, "lines": [4]},
    }


def test_errors_are_told_once_and_as_json_where_it_is_asked_for(tmp_path: Path) -> None:
    path, missing = tmp_path / "trace.jsonl", str(tmp_path / "missing.jsonl")
    path.write_text('{"id": "a", "prompt": "x"}\n' * 5)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompts": 3}\n')
    model = "pixtral-12b-2409"
    for arguments, status, reason, message in (
        (("trace", missing, "--model", model), 2, "os_error", "missing.jsonl"),
        (("trace", str(bad), "--model", model), 1, "invalid_request", "has an exact answer"),
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
