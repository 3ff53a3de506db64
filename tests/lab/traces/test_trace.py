"""``mmroute trace``: policies beside each other, bad lines counted."""

from __future__ import annotations

import json
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
