"""The subscriber against sockets like those of vLLM's publisher, with recorded payloads."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
import zmq
from comparison import read_vectors
from paths import VECTORS
from scripted_publisher import Worker

from mmroute.kv_events import BlockIndex, Lost, Received, Restarted, Subscriber
from mmroute.kv_events.streams import Message

pytestmark = pytest.mark.process
PAYLOADS = [
    bytes.fromhex(case["payload"])
    for case in read_vectors(VECTORS / "kv_events" / "batches.jsonl")[1]
    if case.get("stream") == "bytes"
]


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


def told(messages: Iterable[Message]) -> list[int]:
    """The numbers of batches, of which none may be lost."""
    found = list(messages)
    assert not [m for m in found if isinstance(m, Lost | Restarted)]
    return [m.sequence for m in found if isinstance(m, Received)]


def taken(subscriber: Subscriber, count: int) -> list[Message]:
    """So many messages, or those of ten seconds."""
    found: list[Message] = []
    deadline = time.monotonic() + 10
    while len(found) < count and time.monotonic() < deadline:
        found += subscriber.receive(0.1)
    return found


def test_what_was_missed_is_replayed_and_enters_the_index(worker: Worker) -> None:
    worker.publish(*PAYLOADS[:2], heard=False)
    index = BlockIndex()
    with Subscriber(
        worker.endpoint, topic="kv@", replay_endpoint=worker.replay_endpoint
    ) as subscriber:
        messages = iter(subscriber)
        assert told(next(messages) for _ in range(2)) == [0, 1]
        worker.events.recv()  # it has subscribed
        worker.publish(PAYLOADS[2], heard=False)
        worker.publish(PAYLOADS[3])
        for message in (next(messages) for _ in range(2)):
            assert isinstance(message, Received)
            index.apply("w", message)
    assert index.longest_prefixes([]) == {("w", 0): 0}


def test_a_new_process_is_seen_that_goes_on_with_the_next_number(worker: Worker) -> None:
    payloads = [msgspec.msgpack.encode([float(ts), [], 0]) for ts in range(5)]
    worker.publish(*payloads[:2], heard=False)
    with Subscriber(
        worker.endpoint, topic="kv@", replay_endpoint=worker.replay_endpoint
    ) as subscriber:
        assert told(taken(subscriber, 2)) == [0, 1]
        worker.events.recv()  # it has subscribed
        worker.close()
        another = Worker(before=worker)
        try:
            another.publish(*payloads[2:4], heard=False)
            restarted, *others = taken(subscriber, 3)
            assert isinstance(restarted, Restarted)
            assert another.events.poll(5000)  # it has subscribed again
            another.publish(payloads[4])
            assert told([*others, *taken(subscriber, 1)]) == [0, 1, 2]
        finally:
            another.close()


def test_asyncio_receives_the_same(worker: Worker) -> None:
    async def first(count: int) -> list[Message]:
        found = []
        with Subscriber(worker.endpoint, replay_endpoint=worker.replay_endpoint) as subscriber:
            async for message in subscriber:
                found.append(message)
                if len(found) == count:
                    break
        return found

    worker.publish(*PAYLOADS)
    assert told(asyncio.run(first(len(PAYLOADS)))) == list(range(len(PAYLOADS)))


def test_publishers_connect_to_a_subscriber_that_binds() -> None:
    with zmq.Context() as context, Subscriber("tcp://127.0.0.1:*", bind=True) as subscriber:
        publisher = context.socket(zmq.PUB)
        publisher.connect(subscriber._events.getsockopt_string(zmq.LAST_ENDPOINT))
        found: list[Message] = []
        while not found:  # what is sent before it is connected is lost
            publisher.send_multipart([b"", bytes(8), PAYLOADS[0]])
            found = subscriber.receive(0.1)
        assert told(found)[:1] == [0]
        publisher.close(linger=0)
    with pytest.raises(ValueError, match="one publisher"):
        Subscriber("tcp://*:1", bind=True, replay_endpoint="tcp://a:1")


def test_it_ends_when_it_is_closed_from_another_thread(worker: Worker) -> None:
    subscriber = Subscriber(worker.endpoint)
    threading.Timer(0.1, subscriber.close).start()
    assert list(subscriber) == []


if importlib.util.find_spec("vllm"):

    def test_vllms_own_publisher() -> None:
        """Batches before it is connected to, and then more than its socket holds."""
        from vllm.distributed.kv_events import (
            AllBlocksCleared,
            KVEventBatch,
            ZmqEventPublisher,
        )

        endpoints = "tcp://127.0.0.1:15557", "tcp://127.0.0.1:15558"

        def publisher() -> Any:
            events, replays = (e.replace("127.0.0.1", "*") for e in endpoints)
            return ZmqEventPublisher(0, events, replays, hwm=50, topic="kv")

        def publish(count: int) -> None:
            for _ in range(count):
                process.publish(KVEventBatch(time.time(), [AllBlocksCleared()]))

        process = publisher()
        publish(5)
        with Subscriber(endpoints[0], topic="kv", replay_endpoint=endpoints[1]) as subscriber:
            messages = iter(subscriber)
            assert told(next(messages) for _ in range(5)) == [0, 1, 2, 3, 4]
            publish(5000)  # while nobody takes them
            time.sleep(1)
            publish(1)
            assert told(next(messages) for _ in range(5001)) == list(range(5, 5006))
        process.shutdown()
