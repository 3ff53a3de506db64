"""A proof from end to end, with a stand-in for the engine's process."""

from __future__ import annotations

import base64
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command_line import Finished, run
from PIL import Image
from stand_in_engine import stand_in_python
from waiting import until

MODEL = "small-qwen2.5-vl"
STRING = "org/small-qwen2.5-vl"
ENGINE = f"PYTHONHASHSEED=0 vllm serve {STRING} --max-model-len 4096"
CASES = [
    {"id": "text", "messages": [{"role": "user", "content": "One two three four. " * 30}]},
    {"id": "again", "messages": [{"role": "user", "content": "One two three four. " * 30}]},
    {
        "id": "image",
        "messages": [{"role": "user", "content": [
            {"type": "image"}, {"type": "text", "text": "What? " * 40},
        ]}],
        "images": [{"width": 112, "height": 84}],
    },
]  # fmt: skip

pytestmark = pytest.mark.process


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> str:
    return str(small_model(MODEL))


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program in the place of a Python that has vLLM."""
    return str(stand_in_python(tmp_path_factory.mktemp("engine")))


@pytest.fixture
def prove(model: str, python: str, tmp_path: Path) -> Callable[..., Finished]:
    """Prove three requests."""
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, CASES)), encoding="utf-8")
    return partial(run, "prove", model, "--python", python, "--cases", str(path), "--json")


def test_all_requests_of_its_own_are_equal(model: str, python: str) -> None:
    given = [model, "--python", python, "--json", "--engine-args"]
    result = run("prove", *given, f"{ENGINE} --tensor-parallel-size 2 --block-size 48")
    report = json.loads(result.stdout)
    assert result.status == 0, report["findings"]
    assert report["verdicts"]["equal"] > 80
    assert report["verdicts"]["equal"] + report["verdicts"]["no_block"] > 100
    assert report["verdicts"]["silent"] == report["verdicts"]["unneeded"] == 0
    assert "--tensor-parallel-size 2" in report["notes"][0]
    assert "--block-size 48 is 32" in report["notes"][1]


def test_what_a_router_is_told_wrongly_is_proposed_also_for_a_recording(
    model: str, prove: Callable[..., Finished], tmp_path: Path
) -> None:
    record = str(tmp_path / "record.jsonl")
    told = "PYTHONHASHSEED=5 vllm serve org/other --max-model-len 64"
    result = prove("--engine-args", ENGINE, "--router-args", told, "--record", record)
    again = run("validate", model, "--events", record, "--engine-args", told, "--json")
    for finished in (result, again):
        assert finished.status == 1
        proposed = json.loads(finished.stdout)["proposal"]
        assert proposed.endswith("with these 3 of 3 would be equal")
        for setting in (
            f"--model {STRING}", "PYTHONHASHSEED=0", "--block-size 32", "--max-model-len 4096"
        ):  # fmt: skip
            assert setting in proposed


def _picture(color: int) -> str:
    stream = io.BytesIO()
    Image.new("RGB", (112, 84), (color, color, color)).save(stream, "PNG")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


# Four requests of two pictures in turn, by what tells the pictures apart.
BY_CONTENT = [{"type": "image_url", "image_url": {"url": _picture(color)}} for color in (20, 90)]
BY_NAME = [{**BY_CONTENT[0], "uuid": name} for name in ("one", "two")]


@pytest.mark.parametrize(
    ("pictures", "told", "proposed"),
    [
        (BY_NAME, f"PYTHONHASHSEED=7 vllm serve {STRING}", "PYTHONHASHSEED=0"),
        (BY_CONTENT, "PYTHONHASHSEED=0 vllm serve org/other", f"--model {STRING}"),
    ],
    ids=["names", "contents"],
)
def test_a_cached_picture_is_not_taken_for_another_of_its_size(
    pictures: list[dict[str, object]],
    told: str,
    proposed: str,
    prove: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """No hash leads to its blocks, and both pictures have the same tokens."""
    text = {"type": "text", "text": "What? " * 40}
    contents = [[pictures[number % 2], text] for number in range(4)]
    lines = [{"messages": [{"role": "user", "content": content}]} for content in contents]
    path = tmp_path / "pictures.jsonl"
    path.write_text("\n".join(json.dumps({"id": f"{n}", **line}) for n, line in enumerate(lines)))
    told += " --block-size 32"
    result = prove("--cases", str(path), "--engine-args", ENGINE, "--router-args", told)
    report = json.loads(result.stdout)
    assert [found["verdict"] for found in report["findings"]] == ["silent"] * 4
    assert proposed in report["proposal"]
    assert "4 of 4" in report["proposal"]


MIN_PIXELS = {"min_pixels": 200_704}


def test_a_changed_spec_is_found(prove: Callable[..., Finished]) -> None:
    """The engine resizes pictures otherwise than the router's spec says."""
    wrong = f"{ENGINE} --block-size 32 --mm-processor-kwargs {shlex.quote(json.dumps(MIN_PIXELS))}"
    result = prove("--engine-args", ENGINE, "--router-args", wrong)
    (found,) = json.loads(result.stdout)["findings"]
    assert (found["id"], found["verdict"]) == ("image", "silent")
    assert "items have other counts" in found["note"]


def test_a_changed_spec_is_told_from_a_wrong_setting(prove: Callable[..., Finished]) -> None:
    """The engine of this test does not read the option, so that its rules are other ones."""
    kwargs = f"--mm-processor-kwargs {shlex.quote(json.dumps(MIN_PIXELS))}"
    report = json.loads(prove("--engine-args", f"{ENGINE} {kwargs}").stdout)
    assert [found["id"] for found in report["findings"]] == ["image"]
    assert "spec of the family qwen2.5-vl" in report["notes"][-1]
    told = ("--router-args", f"{ENGINE} --block-size 32 {kwargs}")
    assert not json.loads(prove("--engine-args", ENGINE, *told).stdout)["notes"]


def test_an_engine_that_does_not_start_tells_why(model: str, python: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = run(
        "prove", model, "--python", python, "--engine-args", f"STAND_IN_DIES=1 {ENGINE}",
        "--log", str(log),
    )  # fmt: skip
    assert result.status == 3
    assert "error, the repository contains custom code" in result.stderr
    assert "AssertionError" in result.stderr
    assert "root cause" not in result.stderr  # it points at another error
    assert "OSError" not in result.stderr  # a warning is no error
    assert "custom code" in log.read_text(encoding="utf-8")


def test_an_engine_that_hangs_is_ended_and_the_report_is_about_the_rest(
    prove: Callable[..., Finished],
) -> None:
    result = prove("--engine-args", f"STAND_IN_HANGS=1 {ENGINE}", "--wait", "15")
    report = json.loads(result.stdout)
    assert result.status == 3  # one equal answer of three proves nothing
    assert report["parity"] is None
    assert report["verdicts"]["equal"] == report["verdicts"]["undecided"] == 1
    assert "did not answer again within 15 s (--wait), and was ended" in report["notes"][0]
    assert "Running: 1 reqs" in report["notes"][0]


# A process that a shell starts in the background ignores the signal, and so do its own.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from mmroute.__main__ import run
run()
"""


def test_an_interrupt_ends_the_engine_and_loses_nothing(
    model: str, python: str, tmp_path: Path
) -> None:
    number, record, cases = (tmp_path / name for name in ("pid", "record.jsonl", "cases.jsonl"))
    line = json.dumps({"prompt": "One two three four. " * 30})
    cases.write_text(f"{line}\n" * 10_000, encoding="utf-8")
    process = subprocess.Popen(
        [
            sys.executable, "-c", INTERRUPTIBLE, "prove", model, "--python", python, "--json",
            "--cases", str(cases), "--record", str(record),
            "--engine-args", f"STAND_IN_PID={number} {ENGINE}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    until(lambda: record.exists() and record.stat().st_size > 10_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert "interrupted after" in err
    assert report["verdicts"]["equal"] > 0
    assert len(record.read_text(encoding="utf-8").splitlines()) >= report["verdicts"]["equal"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text(encoding="utf-8")), 0)


def test_a_python_without_vllm_is_named(model: str) -> None:
    result = run("prove", model, "--python", "/bin/false")
    assert result.status == 3
    assert "--python /bin/false has no vLLM" in result.stderr
