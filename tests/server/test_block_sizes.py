"""A server that learns the block size of an engine from its KV events."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import msgspec
import pytest
from chat_requests import CHAT
from scripted_publisher import Worker
from server_helpers import error_of, metric, serving
from small_models import as_qwen3_5
from starlette.testclient import TestClient
from waiting import until

from mmroute.cli import main
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.kv_events import BlockStored, EventBatch
from mmroute.lab.engines.process import free_port
from mmroute.server import ModelSource

pytestmark = pytest.mark.process
LONG: Final = {"messages": [{"role": "user", "content": "one block and another " * 40}]}
NO_SIZE: Final = "?hashes=hex"
TIMES: Final = itertools.count(1.0)


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


def stored(*sizes: int) -> bytes:
    """The payload of a batch in which each group stores a block of its size."""
    events = tuple(
        BlockStored((bytes([n] * 32),), None, (), size, None, "GPU", None, group_idx=n)
        for n, size in enumerate(sizes)
    )
    return msgspec.msgpack.encode(EventBatch(next(TIMES), events, 0))


def publish(worker: Worker, payload: bytes) -> None:
    """Publish as soon as somebody has subscribed."""
    if not worker.sent:
        assert worker.events.poll(60_000)
        worker.events.recv()
    worker.publish(payload)


def hashes(client: httpx.Client | TestClient, size: str = NO_SIZE) -> list[str]:
    answer = client.post(f"{CHAT}{size}", json=LONG)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: list[str] = answer.json()["block_hashes"]
    return found


def until_equal(client: httpx.Client | TestClient, size: int) -> None:
    """Wait until the hashes without a size are those of a size."""
    expected = hashes(client, f"?block_size={size}")
    until(lambda: client.post(f"{CHAT}{NO_SIZE}", json=LONG).status_code == httpx.codes.OK)
    assert hashes(client) == expected
    assert len(expected) > 1


def refusal(client: httpx.Client | TestClient) -> str:
    answer = client.post(f"{CHAT}{NO_SIZE}", json=LONG)
    assert error_of(answer) == (422, "InexactRouting", "block_size_unknown")
    message: str = answer.json()["error"]["message"]
    return message


@pytest.mark.parametrize(("sizes", "size"), [((128,), 128), ((64, 32), 32), ((160, 160, 160), 160)])
def test_hashes_are_refused_until_the_events_tell_a_size(
    worker: Worker, small_model: Callable[[str], Path], sizes: tuple[int, ...], size: int
) -> None:
    source = ModelSource(str(small_model("small-qwen2.5-vl")), ("m",), events=worker.endpoint)
    with serving([source]) as client:
        assert worker.endpoint in refusal(client)
        until(lambda: 'mmroute_events_publishers{model="m"} 1' in client.get("/metrics").text)
        assert client.post(CHAT, json=LONG).status_code == httpx.codes.OK  # token IDs
        publish(worker, stored(*sizes))
        until_equal(client, size)
        assert metric(client, f'mmroute_block_size_matches{{block_size="{size}",model="m"}}') == 1


def test_metrics_tell_that_no_engine_publishes(small_model: Callable[[str], Path]) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with serving([
        ModelSource(str(small_model("small-qwen2.5-vl")), ("m",), events=endpoint),
        ModelSource(str(small_model("small-llava-1.5")), ("other",)),
    ]) as client:  # fmt: skip
        until(lambda: 'mmroute_events_publishers{model="m"} 0' in client.get("/metrics").text)
        assert 'mmroute_events_publishers{model="other"}' not in client.get("/metrics").text


def test_the_engine_chooses_the_size_of_a_hybrid_model(
    worker: Worker, changed_model: Callable[..., Path]
) -> None:
    """Whatever --block-size says. Another engine in its place may choose another one."""
    directory = str(changed_model("small-qwen3-vl", as_qwen3_5))
    settings = VllmSettings.from_args("vllm serve m --block-size 16")
    with serving([
        ModelSource(directory, ("m",), engine_settings=settings, events=worker.endpoint),
        ModelSource(directory, ("other",), engine_settings=settings),
    ]) as client:  # fmt: skip
        refusal(client)
        publish(worker, stored(64, 32))
        until_equal(client, 32)
        worker.sent.clear()  # another process begins with number 0
        worker.publish(stored(160))
        until(lambda: len(hashes(client)) != len(hashes(client, "?block_size=32")))
        assert hashes(client) == hashes(client, "?block_size=160")
        answer = client.post(f"{CHAT}{NO_SIZE}", json={**LONG, "model": "other"})
        assert error_of(answer) == (422, "InexactRouting", "block_size_unknown")


@pytest.mark.parametrize(
    "case",
    [
        ("--block-size 32", (32,), True),
        ("--block-size 32", (16,), False),
        ("--prefix-match-unit 16", (64, 32), True),
        ("--prefix-match-unit 24", (64, 32), False),
    ],
)
def test_a_given_size_stays_and_a_contradiction_is_said(
    worker: Worker,
    small_model: Callable[[str], Path],
    caplog: pytest.LogCaptureFixture,
    case: tuple[str, tuple[int, ...], bool],
) -> None:
    line, told, matches = case
    source = ModelSource(
        str(small_model("small-qwen2.5-vl")),
        ("m",),
        engine_settings=VllmSettings.from_args(line),
        events=worker.endpoint,
    )
    given = line.rsplit(maxsplit=1)[-1]
    sample = f'mmroute_block_size_matches{{block_size="{min(told)}",model="m"}}'
    with caplog.at_level(logging.INFO, "mmroute.server"), serving([source]) as client:
        before = hashes(client)
        publish(worker, stored(*told))
        until(lambda: sample in client.get("/metrics").text)
        assert metric(client, sample) == matches
        assert hashes(client) == before == hashes(client, f"?block_size={given}")
    warned = [r for r in caplog.records if r.message == "block size contradicted"]
    assert len(warned) == (not matches)
    for record in warned:
        fields = vars(record)["fields"]
        assert (fields["model"], fields["endpoint"]) == ("m", worker.endpoint)
        assert f"{min(told)} tokens" in fields["text"]
        assert f"give {given}" in fields["text"]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ("worker-0:5557", "--events must be tcp://HOST:PORT or ipc://PATH, found worker-0:5557"),
        ("other=tcp://worker-0:5557", "found other=tcp://worker-0:5557"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str],
    small_model: Callable[[str], Path],
    events: str,
    message: str,
) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    assert main(["serve", directory, "--check-config", "--events", events]) == 2
    assert message in capsys.readouterr().err
