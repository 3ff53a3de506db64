"""What a process of one command loads, and what it waits for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

# Rooms of other commands, libraries for what is rare, and an encoder that pays with much text.
UNNEEDED = ["mmroute.lab.parity", "mmroute.lab.traces", "mmroute.lab.cli.bench", "PIL", "fastokens"]


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_one_request_loads_what_it_needs(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps({"prompt": "What is this?"}))
    code = (
        "import sys; from mmroute.cli import main;"
        "from mmroute.tokenizers.formats import hf_tokenizer;"
        "hf_tokenizer.FewestTokens = None;"  # what reads the vocabulary as a whole fails
        "status = main(sys.argv[1:]);"
        "print(sorted(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    model = str(small_model("small-qwen2.5-vl"))
    done = python(code, "tokens", model, "--model-id", "m", "--input", str(requests))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exact"]
    assert [name for name in UNNEEDED if repr(name) in done.stderr] == []


def test_a_command_does_not_wait_for_threads(tmp_path: Path) -> None:
    code = (
        "import threading, time; from mmroute.__main__ import run;"
        "threading.Thread(target=time.sleep, args=[600]).start(); run()"
    )
    done = python(code, "resolve", str(tmp_path), "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["error"]


def test_a_command_frees_nothing_at_its_end_but_does_what_was_left_to_it(tmp_path: Path) -> None:
    code = (
        "import atexit, sys; from mmroute.__main__ import run;"
        "Freed = type('Freed', (), {'__del__': lambda _: print('freed')}); kept = Freed();"
        "atexit.register(print, 'left'); run()"
    )
    done = python(code, "resolve", str(tmp_path), "--json")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "left"
