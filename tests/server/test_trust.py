"""A server that compares its answers with what the engine announces, and acts on it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from chat_requests import CHAT
from scripted_publisher import Worker
from server_helpers import metric, serving
from starlette.testclient import TestClient
from waiting import until

from mmroute import Normalizer
from mmroute.server import ModelSource

pytestmark = pytest.mark.process
MODEL: Final = "small-qwen2.5-vl"
SIZE: Final = 16
NUMBERS: Final = itertools.count()


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


def asked() -> dict[str, Any]:
    text = f"question {next(NUMBERS)} about one block and another " * 5
    return {"messages": [{"role": "user", "content": text}]}


def announced(normalizer: Normalizer, body: dict[str, Any], *, seed: str | None = None) -> bytes:
    """What an engine publishes of a request."""
    routing = normalizer.normalize(**body)
    hashes = list(routing.block_hashes(block_size=SIZE, seed=seed))
    event = {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None,
        "token_ids": routing.token_ids.tolist()[: len(hashes) * SIZE], "block_size": SIZE,
        "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": [None] * len(hashes),
        "group_idx": 0,
    }  # fmt: skip
    return msgspec.msgpack.encode([float(next(NUMBERS)), [event], 0])


def ask(client: TestClient, worker: Worker, normalizer: Normalizer, **how: Any) -> str:
    """Answer a request, and publish it. Returns the outcome, or the reason."""
    body = asked()
    answer = client.post(f"{CHAT}?hashes=hex&block_size={SIZE}", json=body)
    worker.publish(announced(normalizer, body, **how))
    return answer.headers.get("x-mmroute-reason") or answer.headers["x-mmroute-outcome"]


def predictions(client: TestClient) -> dict[str, Any]:
    listed = client.get("/readyz").json()["predictions"]
    found: dict[str, Any] = listed[0] if listed else {"state": "", "requests": {}}
    return found


def is_in(client: TestClient, state: str) -> bool:
    return bool(predictions(client)["state"] == state)


@pytest.fixture
def normalizer(small_model: Callable[[str], Path]) -> Normalizer:
    return Normalizer.from_pretrained(small_model(MODEL))


@pytest.mark.parametrize("acts", [False, True])
def test_an_engine_with_another_seed_is_found_and_proved_again(
    worker: Worker, normalizer: Normalizer, small_model: Callable[[str], Path], acts: bool
) -> None:
    source = ModelSource(str(small_model(MODEL)), ("m",), events=worker.endpoint, distrusts=acts)
    with serving([source]) as client:
        assert worker.events.poll(60_000)
        worker.events.recv()
        worker.publish(announced(normalizer, asked()))  # it tells the size of blocks
        until(lambda: "mmroute_block_size_matches" in client.get("/metrics").text)
        for state, seed in (("proved", None), ("differs", "1"), ("proved", None)):
            outcomes = []
            for _ in range(60):
                outcomes.append(ask(client, worker, normalizer, seed=seed))
                if predictions(client)["state"] == state:
                    break
            until(functools.partial(is_in, client, state))
            labels = f'model="m",state="{state}",version="0.33.0",worker="{worker.endpoint}"'
            assert metric(client, f"mmroute_prediction_state{{{labels}}}") == 1
            if state == "differs":
                assert "its hash is not" in predictions(client)["difference"]
                expected = {"engine_differs"} if acts else {"exact"}
                assert {ask(client, worker, normalizer, seed=seed)} == expected
        until(lambda: ask(client, worker, normalizer) == "exact")
