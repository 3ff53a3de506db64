"""The subscriber against sockets like those of vLLM's publisher, with recorded payloads."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest
import zmq
from comparison import read_vectors
from paths import VECTORS
from prometheus_client import CollectorRegistry, generate_latest
from scripted_publisher import Worker
from waiting import until

from mmroute.kv_events import BlockIndex, Lost, Received, Restarted, Subscriber
from mmroute.kv_events.metrics import HealthCollector
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
    found: list[Message] = []

    def enough() -> bool:
        found.extend(subscriber.receive(0.1))
        return len(found) >= count

    until(enough, lambda: found)
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
            assert another.events.poll(60_000)  # it has subscribed again
            another.publish(payloads[4])
            assert told([*others, *taken(subscriber, 1)]) == [0, 1, 2]
        finally:
            another.close()


def test_events_do_not_wait_for_a_replay_endpoint_that_is_dead(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmroute.kv_events.subscriber._REPLAY_TIMEOUT", 600.0)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as closed:
        closed.bind("tcp://127.0.0.1:*")
        dead = closed.getsockopt_string(zmq.LAST_ENDPOINT)
    with Subscriber(worker.endpoint, replay_endpoint=dead) as subscriber:
        assert taken_until_subscribed(worker, subscriber) == []
        worker.publish(PAYLOADS[0])
        assert told(taken(subscriber, 1)) == [0]
        worker.publish(PAYLOADS[1], heard=False)
        worker.publish(PAYLOADS[2])
        lost, received = taken(subscriber, 2)
        assert isinstance(received, Received)
        assert lost == Lost(received.source, 1, 1, ANY, worker.endpoint)
        state = subscriber.state()
        assert (state.connected, state.replays) == (1, False)
        assert (state.health.batches, state.health.gaps, state.health.lost_batches) == (2, 1, 1)
        registry = CollectorRegistry()
        registry.register(HealthCollector(BlockIndex(), {"w": subscriber}))
        metrics = generate_latest(registry).decode().splitlines()
        assert 'mmroute_index_worker_connected{worker="w"} 1.0' in metrics
        assert 'mmroute_index_worker_replays_answered{worker="w"} 0.0' in metrics
    assert f"{dead}: replays are not answered: the connection is refused" in caplog.text


def test_an_endpoint_that_nobody_answers_is_logged_once_by_name(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmroute.kv_events.subscriber._SILENCE", 0.0)
    worker.close()
    with Subscriber(worker.endpoint) as subscriber:
        for _ in range(3):
            assert not subscriber.receive(0.01)
        [missed] = caplog.messages
        assert missed.startswith(f"{worker.endpoint}: no publisher of events is connected; vLLM")
        another = Worker(before=worker)
        try:
            assert taken_until_subscribed(another, subscriber) == []
        finally:
            another.close()
        until(lambda: subscriber.receive(0.1) or caplog.messages.count(missed) == 2)


def test_a_replay_endpoint_that_comes_back_is_asked_again(worker: Worker) -> None:
    """Its thread hangs first, and then answers what was asked long ago."""
    worker.ending.set()
    worker.thread.join()
    with Subscriber(worker.endpoint, replay_endpoint=worker.replay_endpoint) as subscriber:
        subscriber._deadline = 0  # as if five seconds had gone by
        assert taken_until_subscribed(worker, subscriber) == []
        subscriber._deadline = 0
        worker.publish(PAYLOADS[0])
        assert told(taken(subscriber, 1)) == [0]
        assert subscriber.state().replays is False
        worker.publish(PAYLOADS[1], heard=False)
        worker.ending.clear()
        worker.thread = threading.Thread(target=worker.answer)
        worker.thread.start()
        assert told(taken(subscriber, 1)) == [1]
        assert subscriber.state().replays is True


def test_a_worker_that_ends_is_logged_with_its_endpoint(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    with Subscriber(worker.endpoint) as subscriber:
        taken_until_subscribed(worker, subscriber)
        assert (subscriber.state().connected, subscriber.state().replays) == (1, None)
        worker.close()
        until(lambda: subscriber.receive(0.1) or not subscriber.state().connected)
    assert f"{worker.endpoint}: the connection has ended" in caplog.text


def taken_until_subscribed(worker: Worker, subscriber: Subscriber) -> list[Message]:
    """The messages until the worker has the subscription, and the subscriber knows of it."""
    found: list[Message] = []

    def subscribed() -> bool:
        found.extend(subscriber.receive(0.05))
        return bool(worker.events.poll(0) and subscriber.state().connected)

    until(subscribed)
    worker.events.recv()
    return found


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


def test_asyncio_receives_while_all_threads_of_the_loop_are_busy(worker: Worker) -> None:
    async def first() -> Message:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        done = threading.Event()
        waiting = asyncio.create_task(asyncio.to_thread(done.wait, 20))
        with Subscriber(worker.endpoint, replay_endpoint=worker.replay_endpoint) as subscriber:
            message = await asyncio.wait_for(anext(aiter(subscriber)), 10)
        done.set()
        await waiting
        return message

    worker.publish(*PAYLOADS[:1])
    assert told([asyncio.run(first())]) == [0]


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
