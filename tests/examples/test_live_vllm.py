"""`examples/live_vllm.py` beside a publisher that sends what vLLM's own block pool announced."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import live_vllm
import pytest
from comparison import read_vectors
from paths import VECTORS
from scripted_publisher import Worker

MODEL = "small-qwen2.5-vl"


@pytest.mark.process
def test_blocks_that_a_worker_announced_are_found(
    small_model: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases = read_vectors(VECTORS / "settings" / f"{MODEL}.jsonl")[1]
    case = next(c for c in cases if c["id"] == "defaults: two images")
    worker = Worker()
    worker.publish(*[base64.b64decode(payload) for payload in case["events"]], heard=False)
    answers: list[dict[str, object]] = []

    def asked() -> Iterator[str]:
        """The same request, until the replay has come."""
        for _ in range(200):
            yield json.dumps(case["request"] | {"id": "two images"})
            answers.append(json.loads(capsys.readouterr().out))
            if answers[-1]["held"]:
                return
            time.sleep(0.05)

    monkeypatch.setattr("sys.stdin", asked())
    monkeypatch.setattr("sys.argv", [
        "live_vllm.py", str(small_model(MODEL)), "--engine-args", case["arguments"],
        "--worker", f"a={worker.endpoint},{worker.replay_endpoint}",
    ])  # fmt: skip
    try:
        live_vllm.main()
    finally:
        worker.close()
    blocks = answers[-1]["blocks"]
    assert blocks
    assert answers[-1]["held"] == {"a/0": blocks}
