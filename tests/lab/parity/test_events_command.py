"""``mmroute validate --events``: what it proposes, what it refuses, and a run beside a server."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from command_line import run
from comparison import read_vectors
from paths import VECTORS
from scripted_server import ScriptedServer

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.hashing import event_extra_keys
from mmroute.kv_events import decode_events

MODEL = "small-qwen2.5-vl"
CASES = read_vectors(VECTORS / "settings" / f"{MODEL}.jsonl")[1]


def recorded_with(setting: str) -> str:
    """The command line of the engine."""
    return str(next(case["arguments"] for case in CASES if case["setting"] == setting))


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> str:
    return str(small_model(MODEL))


def recording(tmp_path: Path, setting: str) -> str:
    path = tmp_path / "recording.jsonl"
    lines = [json.dumps(case) for case in CASES if case["setting"] == setting]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_the_command_proposes_what_makes_all_equal(tmp_path: Path, model: str) -> None:
    given = ["--events", recording(tmp_path, "algorithm and seed")]
    wrong = run("validate", model, *given, "--engine-args", f"vllm serve {MODEL}")
    assert wrong.status == 1
    assert "with these 4 of 4 would be equal" in wrong.stdout
    right = run("validate", model, *given, "--engine-args", recorded_with("algorithm and seed"))
    assert right.status == 0, right.stdout


def test_a_run_without_a_block_is_no_parity(tmp_path: Path, model: str) -> None:
    """The IDs are those of the engine, and a wrong block size would not be seen."""
    prompt = "One two three"
    routing = Normalizer.from_pretrained(model).normalize(prompt=prompt)
    path = tmp_path / "recording.jsonl"
    line = {"id": "a", "request": {"prompt": prompt}, "token_ids": routing.token_ids.tolist()}
    path.write_text(json.dumps(line))
    given = ("validate", model, "--events", str(path), "--engine-args")
    result = run(*given, f"vllm serve {MODEL} --block-size 128")
    assert result.status == 3
    report = json.loads(run(*given, f"vllm serve {MODEL}", "--json").stdout)
    assert (report["parity"], report["verdicts"]["no_block"]) == (None, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--against ORACLE, or --events"),
        (["--events", "tcp://a:1", "--cases", "x.jsonl"], "sent to a server"),
        (["--events", "tcp://a:1", "--against", "vllm"], "URL of the server"),
        (["--events", "tcp://a:1", "--record", "x.jsonl"], "--against URL"),
        (["--events", "nowhere.jsonl"], "there is no such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], words: str, model: str
) -> None:
    result = run("validate", model, *arguments)
    assert result.status == 2
    assert words in result.stderr


def test_a_recording_that_cannot_be_read_is_named(tmp_path: Path, model: str) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text('{"id": "a", "request": {}, "events": ["wQ=="]}')
    result = run("validate", model, "--events", str(path))
    assert result.status == 3
    assert "line 1" in result.stderr
    missing = run("validate", model, "--events", str(tmp_path / "none"))
    assert missing.status == 2
    assert "no such file" in missing.stderr


def test_watching_says_what_is_not_compared(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [
        decode_events(base64.b64decode(payload))
        for case in CASES
        if case["setting"] == "defaults"
        for payload in case["events"]
    ]
    monkeypatch.setattr("mmroute.lab.parity.events.live.watched", lambda *_: batches)
    result = run("validate", model, "--events", "tcp://127.0.0.1:1", "--engine-args", MODEL)
    assert result.status == 0, result.stdout + result.stderr
    assert "Only the hashes of announced tokens were compared" in result.stdout


@pytest.mark.process
def test_requests_are_sent_and_their_events_compared(tmp_path: Path, model: str) -> None:
    """The engine is one that announces what mmroute predicts, under another seed."""
    engine = Normalizer.from_pretrained(
        model, engine_settings=VllmSettings.from_args(f"PYTHONHASHSEED=3 vllm serve {MODEL}")
    )
    context = zmq.Context()
    events = context.socket(zmq.PUB)
    port = events.bind_to_random_port("tcp://127.0.0.1")

    def announce(body: dict[str, Any]) -> dict[str, Any]:
        routing = engine.normalize(messages=body["messages"], cache_salt=body["cache_salt"])
        hashes = routing.block_hashes()
        stored = {
            "type": "BlockStored", "block_hashes": hashes.event_ints(), "parent_block_hash": None,
            "token_ids": routing.token_ids[: 16 * len(hashes)].tolist(), "block_size": 16,
            "lora_id": None, "medium": "GPU", "lora_name": None,
            "extra_keys": event_extra_keys(routing.extra_keys()),
        }  # fmt: skip
        number = len(sent).to_bytes(8, "big")
        sent.append(body)
        payload = msgspec.msgpack.encode([time.time(), [stored], 0])
        events.send_multipart([b"", number, payload])
        return {"choices": []}

    sent: list[dict[str, Any]] = []
    cases = tmp_path / "cases.jsonl"
    lines = [c["request"] for c in CASES if c["setting"] == "defaults" and "salt" not in c["id"]]
    cases.write_text("\n".join(json.dumps(line) for line in lines[:2]))
    kept = tmp_path / "kept.jsonl"
    with ScriptedServer() as server:
        server.routes["/v1/chat/completions"] = (200, announce)
        server.routes["/version"] = (200, {"version": "0.34.0"})
        result = run(
            "validate", model, "--model-id", MODEL, "--events", f"tcp://127.0.0.1:{port}",
            "--against", server.url, "--cases", str(cases), "--record", str(kept),
        )  # fmt: skip
    context.destroy(linger=0)
    assert [body["max_tokens"] for body in sent] == [1, 1]
    assert "vllm 0.34.0: unknown" in result.stdout.splitlines()[1]
    assert "warning: vllm 0.34.0: unknown" in result.stderr
    assert "proposed: PYTHONHASHSEED=3; with these 2 of 2 would be equal" in result.stdout
    again = run("validate", model, "--model-id", MODEL, "--events", str(kept))
    assert "proposed: PYTHONHASHSEED=3" in again.stdout
