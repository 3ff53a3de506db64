"""What follows from the messages of publishers that come late, twice, or never."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmroute.kv_events.streams import Lost, Message, Received, Restarted, Source, Streams

END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """One worker's process after the other, as vLLM's ZmqEventPublisher numbers its batches."""

    def __init__(self, buffer_steps: int = 10_000, rank: int = 0) -> None:
        self.rank = rank
        self.time = 0.0
        self.buffer_steps = buffer_steps
        self.start()

    def start(self) -> None:
        """Another process."""
        self.number = 0
        self.buffer: deque[list[bytes]] = deque(maxlen=self.buffer_steps)

    def publish(self) -> list[bytes]:
        self.time += 1
        payload = msgspec.msgpack.encode([self.time, [{"type": "AllBlocksCleared"}], self.rank])
        frames = [b"kv", self.number.to_bytes(8, "big"), payload]
        self.number += 1
        self.buffer.append(frames)
        return frames

    def replay(self, request: bytes) -> Iterator[list[bytes]]:
        yield from (frames for frames in self.buffer if frames[1] >= request)
        yield [b"", END, b""]


def answered(streams: Streams, publisher: Publisher) -> list[Message]:
    """What follows from the replays that are asked for."""
    found: list[Message] = []
    while (request := streams.take_request()) is not None:
        for frames in publisher.replay(request):
            found += streams.replayed(frames)
    return found


def listening(publisher: Publisher) -> Streams:
    streams = Streams(replays=True)
    assert answered(streams, publisher) == []
    return streams


def heard(streams: Streams, publisher: Publisher) -> list[Message]:
    """What follows from one more batch, and from the replays that it makes necessary."""
    found = list(streams.received(publisher.publish()))
    return found + answered(streams, publisher)


def told(messages: Iterable[Message]) -> list[Any]:
    """Numbers that were received, ranges that were lost, and restarts."""
    return [
        m.sequence
        if isinstance(m, Received)
        else (m.first, m.last)
        if isinstance(m, Lost)
        else "new"
        for m in messages
    ]


def with_a_gap() -> tuple[Publisher, Streams]:
    """A publisher of which the second of three batches was not heard."""
    publisher = Publisher()
    streams = listening(publisher)
    assert told(streams.received(publisher.publish())) == [0]
    publisher.publish()
    assert told(streams.received(publisher.publish())) == []
    return publisher, streams


def test_what_was_published_before_is_replayed() -> None:
    publisher = Publisher(buffer_steps=3)
    for _ in range(5):
        publisher.publish()
    streams = Streams(replays=True)
    assert told(answered(streams, publisher)) == [(0, 1), 2, 3, 4]
    assert told(streams.received(publisher.publish())) == [5]


def test_replays_may_leave_the_topic_out() -> None:
    """As those of SGLang before 0.5.22 do."""
    publisher, streams = with_a_gap()
    request = streams.take_request()
    assert request is not None
    parts = [streams.replayed(frames[1:]) for frames in publisher.replay(request)]
    assert [number for part in parts for number in told(part)] == [1, 2]
    assert not streams.is_replaying
    assert told(streams.received(publisher.publish())) == [3]


def test_a_gap_is_filled_by_a_replay_while_messages_go_on_coming() -> None:
    publisher, streams = with_a_gap()
    assert told(streams.received(publisher.publish())) == []
    assert streams.is_replaying
    assert told(answered(streams, publisher)) == [1, 2, 3]
    assert told(streams.received(publisher.publish())) == [4]


def test_what_is_missed_while_a_replay_runs_is_asked_for_as_well() -> None:
    publisher, streams = with_a_gap()
    request = streams.take_request()
    assert request is not None
    replay = list(publisher.replay(request))
    publisher.publish()
    assert told(streams.received(publisher.publish())) == []
    assert told([m for frames in replay for m in streams.replayed(frames)]) == [1, 2]
    assert told(answered(streams, publisher)) == [3, 4]


def test_what_waits_of_the_process_before_is_not_taken_for_the_new_ones() -> None:
    publisher = Publisher()
    streams = listening(publisher)
    assert told(streams.received(publisher.publish())) == [0]
    publisher.publish()  # not heard
    assert told(streams.received(publisher.publish())) == []
    publisher.start()
    for _ in range(2):
        publisher.publish()  # not heard
    assert told(answered(streams, publisher)) == ["new", 0, 1]
    assert told(streams.received(publisher.publish())) == [2]


def test_what_no_replay_has_is_lost() -> None:
    publisher = Publisher(buffer_steps=2)
    streams = listening(publisher)
    messages = [publisher.publish() for _ in range(6)]
    assert told([*streams.received(messages[0]), *streams.received(messages[5])]) == [0]
    assert told(answered(streams, publisher)) == [(1, 3), 4, 5]


def test_a_replay_that_does_not_come_is_given_up() -> None:
    publisher = Publisher()
    streams = listening(publisher)
    messages = [publisher.publish() for _ in range(4)]
    assert told([*streams.received(messages[2]), *streams.received(messages[3])]) == []
    assert streams.take_request() == bytes(8)
    assert told(streams.give_up()) == [(0, 1), 2, 3]
    assert not streams.is_replaying


def test_without_replays_a_gap_is_lost_at_once() -> None:
    publisher, streams = Publisher(), Streams()
    messages = [publisher.publish() for _ in range(4)]
    assert told(streams.received(messages[1])) == [(0, 0), 1]
    assert told(streams.received(messages[3])) == [(2, 2), 3]
    assert told(streams.received(messages[2])) == []  # late, and said to be lost
    assert told(streams.received(messages[3])) == []  # again


@pytest.mark.parametrize("replays", [True, False])
def test_a_restart_is_seen_by_numbers_that_begin_again(replays: bool) -> None:
    publisher = Publisher()
    streams = listening(publisher) if replays else Streams()
    for _ in range(3):
        heard(streams, publisher)
    publisher.start()
    assert told(heard(streams, publisher)) == ["new", 0]
    assert told([m for _ in range(2) for m in heard(streams, publisher)]) == [1, 2]
    publisher.start()
    publisher.publish()  # not heard
    found = list(streams.received(publisher.publish()))
    found += answered(streams, publisher)
    assert told(found) == (["new", (0, 0), 1] if not replays else ["new", 0, 1])


def test_a_restart_is_seen_where_the_new_process_is_ahead() -> None:
    publisher = Publisher()
    streams = listening(publisher)
    for _ in range(2):
        list(streams.received(publisher.publish()))
    publisher.start()
    for _ in range(4):
        publisher.publish()  # not heard
    assert told(streams.received(publisher.publish())) == []
    assert told(answered(streams, publisher)) == ["new", 0, 1, 2, 3, 4]


def test_a_replay_without_the_last_known_batch_may_be_of_another_process() -> None:
    publisher = Publisher(buffer_steps=3)
    streams = listening(publisher)
    assert told(streams.received(publisher.publish())) == [0]
    publisher.start()
    for _ in range(3):
        publisher.publish()  # not heard
    assert told(streams.received(publisher.publish())) == []
    assert told(answered(streams, publisher)) == ["new", (0, 0), 1, 2, 3]


def test_a_silence_hides_no_lost_batch_and_no_restart() -> None:
    publisher = Publisher()
    streams = listening(publisher)
    assert told(streams.received(publisher.publish())) == [0]
    streams.check()
    assert told(answered(streams, publisher)) == []  # nothing was lost
    publisher.publish()  # not heard
    streams.check()
    assert told(answered(streams, publisher)) == [1]
    publisher.start()
    streams.check()
    assert told(answered(streams, publisher)) == ["new"]
    assert told(streams.received(publisher.publish())) == [0]


@pytest.mark.parametrize("batches", [1, 3])
def test_a_restart_is_seen_before_the_new_process_publishes(batches: int) -> None:
    publisher = Publisher(buffer_steps=2)
    streams = listening(publisher)
    for process in range(3):
        assert told([m for _ in range(batches) for m in heard(streams, publisher)]) == [
            *range(batches)
        ]
        publisher.start()
        streams.check()
        assert told(answered(streams, publisher)) == ["new"], process
        streams.check()
        assert told(answered(streams, publisher)) == []  # it is said once


def test_no_restart_is_seen_in_replays_that_never_bring_a_batch() -> None:
    publisher = Publisher(buffer_steps=0)
    streams = listening(publisher)
    for number in range(3):
        assert told(heard(streams, publisher)) == [number]
        streams.check()
        assert told(answered(streams, publisher)) == []
    publisher.start()
    assert told(heard(streams, publisher)) == ["new", 0]
    streams.check()
    assert told(answered(streams, publisher)) == []


def test_a_process_is_asked_once_whether_it_replays_its_batches() -> None:
    for buffer_steps in (0, 5):
        publisher = Publisher(buffer_steps)
        streams, asked = listening(publisher), []
        for _ in range(5):
            list(streams.received(publisher.publish()))
            asked.append(streams.is_replaying)
            answered(streams, publisher)
        assert asked == [True, False, False, False, False]


def test_ranks_and_topics_have_numbers_of_their_own() -> None:
    streams, ranks = Streams(), [Publisher(rank=0), Publisher(rank=1)]
    found = [m for p in (*ranks, *ranks) for m in streams.received(p.publish())]
    assert told(found) == [0, 0, 1, 1]
    assert [m.source for m in found[:2]] == [Source("kv", 0), Source("kv", 1)]
    assert told(streams.received([b"other", *Publisher().publish()[1:]])) == [0]


def test_what_cannot_be_read_is_lost_and_stops_nothing() -> None:
    publisher, streams = Publisher(), Streams()
    first, second, third = (publisher.publish() for _ in range(3))
    assert told(streams.received(first)) == [0]
    (lost,) = streams.received([*second[:2], b"\xc1"])
    assert isinstance(lost, Lost)
    assert (lost.first, lost.last) == (1, 1)
    assert "no KV event batch" in lost.why
    assert told(streams.received(third)) == [2]
    assert told(streams.received([b"one frame"])) == [(0, 0)]


def test_memory_is_bounded_while_a_replay_runs() -> None:
    publisher, streams = Publisher(), Streams(replays=True, most_waiting=200)
    found: list[Message] = []
    for _ in range(500):
        found += streams.received(publisher.publish())
    assert found == []
    assert streams._waiting_bytes < 300
    streams.take_request()
    list(streams.ended())  # the publisher did not answer
    found += streams.received(publisher.publish())
    found += answered(streams, publisher)
    assert told(found)[-1] == 500
    assert len(found) > 400  # what was let go was asked for again


ACTIONS = st.lists(st.sampled_from(["heard", "unheard", "twice", "restart", "answer"]), max_size=40)


@given(ACTIONS, st.integers(1, 8), st.booleans())
def test_every_batch_is_received_or_lost_once_and_in_order(
    actions: list[str], buffer_steps: int, replays: bool
) -> None:
    publisher = Publisher(buffer_steps)
    streams = Streams(replays=replays)
    found: list[Message] = []
    for action in [*actions, "heard", "answer"]:
        match action:
            case "restart":
                publisher.start()
            case "answer":
                found += answered(streams, publisher)
            case "unheard":
                publisher.publish()
            case _:
                frames = publisher.publish()
                for _ in range(2 if action == "twice" else 1):
                    found += streams.received(frames)
    found += answered(streams, publisher)
    expected = 0
    for message in found:
        if isinstance(message, Restarted):
            expected = 0
        else:
            first, last = (
                (message.sequence,) * 2
                if isinstance(message, Received)
                else (message.first, message.last)
            )
            assert first == expected
            expected = last + 1
    newest = found[-1]
    assert isinstance(newest, Received)  # the last batch is always there
    assert newest.batch.ts == publisher.time
