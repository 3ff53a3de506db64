"""A trace answered by Ray Data gives the numbers of one process, also where a worker is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from compare_routers import cluster
from traces.make_trace import Parameters, make_trace

from mmroute.lab.traces import trace_chunks

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore")]  # those of Ray

WORKER = b"ray::MapWorker"


def lose_a_worker() -> None:
    """End the first worker that answers."""
    for _ in range(2400):
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if (process / "cmdline").read_bytes().startswith(WORKER):
                    os.kill(int(process.name), signal.SIGKILL)
                    return
        time.sleep(0.1)


def report(trace: Path, model: str, *options: str) -> dict[str, Any]:
    finished = run("trace", str(trace), "--model", model, "--model-id", "a", "--json", *options)
    assert finished.status == 0, finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def test_two_nodes_give_the_numbers_of_one_process_and_a_lost_worker_is_replaced(
    small_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(small_model("small-qwen2.5-vl"))
    lines = [json.dumps(line) for line in make_trace(Parameters(requests=70))]
    lines[7], lines[60] = "nonsense", ""
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(lines))
    alone = report(trace, model)
    assert alone["refused"]["invalid_request"]["lines"] == [8]
    monkeypatch.setattr(trace_chunks, "_RANGE_BYTES", 20_000)
    monkeypatch.setattr(trace_chunks, "_CHUNK_LINES", 10)
    with cluster(2):
        threading.Thread(target=lose_a_worker, daemon=True).start()
        assert report(trace, model, "--ray") == alone
