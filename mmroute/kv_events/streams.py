"""The messages of event publishers put in order: what is missing, repeated, or of a new process.

Nothing here waits, reads a clock or opens a socket: messages go in, and what they mean comes out.
Source: vLLM ``distributed/kv_events.py`` (`ZmqEventPublisher`). A message has three frames:
topic, sequence number (8 bytes, big-endian, from 0 in each process), payload. A replay is asked
for by a number, and answered by all batches from there on that the publisher still has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from mmroute.engines.events import Changes, EventBatch, decode_changes, decode_events
from mmroute.errors import EventsError

_NUMBER_BYTES: Final = 8
_FRAMES: Final = 3
_END: Final = (-1).to_bytes(_NUMBER_BYTES, "big", signed=True)


class Source(NamedTuple):
    """One publisher: a data-parallel rank of a worker."""

    topic: str
    data_parallel_rank: int


class Position(NamedTuple):
    """How far a publisher's batches were taken.

    Attributes:
        sequence: the number of the last batch.
        ts: its `EventBatch.ts`. Another process has other times under the same numbers.
    """

    sequence: int
    ts: float


class Received(NamedTuple):
    """One batch, in its place.

    Attributes:
        source: the publisher.
        sequence: the batch's number.
        changes: the changes of stored blocks that the batch reports.
        payload: the whole batch, as it was sent.
    """

    source: Source
    sequence: int
    changes: Changes | EventBatch
    payload: bytes

    @property
    def batch(self) -> EventBatch:
        """All fields of the events.

        Raises:
            EventsError: one that `changes` has no need of cannot be read.
        """
        return decode_events(self.payload)


class Lost(NamedTuple):
    """Batches that are not to be had: those numbered from `first` to `last`, both included.

    Blocks that were removed in one of them seem to be held for ever. Forget the worker's blocks
    unless they may be held in error.

    Attributes:
        source: the publisher.
        first: the number of the first batch.
        last: the number of the last batch.
        why: the cause, in words.
        endpoint: the address of the publisher's events, as it was given to the subscriber.
    """

    source: Source
    first: int
    last: int
    why: str
    endpoint: str


class Restarted(NamedTuple):
    """The worker's process is another one. Its cache is empty: forget all of its blocks."""

    source: Source


Message: TypeAlias = Received | Lost | Restarted
"""What a subscriber gives."""


@dataclass(slots=True)
class _Stream:
    """One publisher's sequence numbers."""

    source: Source
    endpoint: str
    next: int = 0
    last_time: float = float("-inf")
    is_replayed: bool | None = None  # whether replays bring this process's batches

    def put(self, new: Received) -> Iterator[Message]:
        """A message, of which those before it are not to be had if they are missing."""
        if new.sequence < self.next:
            # A message that comes again was made before the last one, one of a new process after.
            if new.changes.ts <= self.last_time:
                return
            yield self.restarted()
        if new.sequence > self.next:
            why = "they were not received, and no replay has them"
            yield Lost(self.source, self.next, new.sequence - 1, why, self.endpoint)
        self.next, self.last_time = new.sequence + 1, new.changes.ts
        yield new

    def restarted(self) -> Restarted:
        """Begin again."""
        self.next, self.last_time, self.is_replayed = 0, float("-inf"), None
        return Restarted(self.source)


@dataclass(slots=True)
class Streams:
    """All publishers that one subscriber hears, or the one that it can ask for replays."""

    replays: bool = False  # whether the only publisher answers replays
    # The number of bytes of messages that are kept while a replay runs. Further messages are
    # dropped, and asked for again.
    most_waiting: int = 64 << 20
    # For each publisher the place up to which another subscriber took its batches.
    taken: Mapping[Source, Position] = field(default_factory=dict)
    endpoint: str = ""  # the address of the events, for messages
    # Whether a replay was asked for, and has not ended.
    is_replaying: bool = field(default=False, init=False)
    _streams: dict[Source, _Stream] = field(default_factory=dict)
    _waiting: list[Received] = field(default_factory=list)
    _waiting_bytes: int = 0
    _asked: int = 0
    _request: int | None = None
    _gives: bool = False

    def __post_init__(self) -> None:
        for source, (sequence, ts) in self.taken.items():
            self._streams[source] = _Stream(source, self.endpoint, sequence + 1, ts, True)
        self.check()  # what was published before anybody listened

    def take_request(self) -> bytes | None:
        """The replay to be asked for now, as the publisher wants it; None for none."""
        number, self._request = self._request, None
        return None if number is None else number.to_bytes(_NUMBER_BYTES, "big")

    def check(self) -> None:
        """Ask for what comes after the last batch, in a silence that may hide a lost one."""
        if self.replays and not self.is_replaying:
            self._ask(max((stream.next for stream in self._streams.values()), default=0))

    def received(self, frames: Sequence[bytes]) -> Iterator[Message]:
        """The messages that a message of the publishers makes ready, in their order."""
        new = self._arrived(frames)
        if isinstance(new, Lost):
            yield new
        elif self.is_replaying:
            self._wait(new)
        elif self.replays and new.sequence > self._stream(new.source).next:
            self._wait(new)
            self._ask(self._stream(new.source).next)
        else:
            for message in self._stream(new.source).put(new):
                yield message
                if isinstance(message, Restarted) and self.replays and new.sequence:
                    self._wait(new)
                    self._ask(0)
                    return
            self._try_replays()

    def replayed(self, frames: Sequence[bytes]) -> Iterator[Message]:
        """The messages that a part of a replay makes ready, in their order."""
        if not self.is_replaying or self._request is not None:
            return  # of a replay that is of no use any more
        if len(frames) == _FRAMES - 1:  # SGLang before 0.5.22 leaves the topic out
            topics = {source.topic for source in self._streams}
            frames = [max(topics, default="").encode(), *frames]
        if frames[1:2] == [_END]:
            known = [stream for stream in self._streams.values() if stream.next]
            if known and known[0].is_replayed and not self._gives:
                self._drop_waiting(float("inf"))
                yield known[0].restarted()  # its own process would have the last batch
                self._ask(0)
            else:
                for stream in known:
                    stream.is_replayed = self._gives
                yield from self.ended()
            return
        is_first, self._gives = not self._gives, True
        new = self._arrived(frames)
        if isinstance(new, Lost):
            yield new
            return
        stream = self._stream(new.source)
        if is_first and new.sequence == stream.next and stream.next:
            self._drop_waiting(new.changes.ts)
            yield stream.restarted()  # without the last known batch nothing says whose this is
        if new.sequence >= stream.next:
            yield from stream.put(new)
        elif new.sequence == stream.next - 1 and new.changes.ts != stream.last_time:
            self._drop_waiting(new.changes.ts)
            yield stream.restarted()  # another process has other batches by the same numbers
            self._ask(0)

    def give_up(self) -> Iterator[Message]:
        """Do without replays, as they are not answered; return the messages that waited for one."""
        self.replays = False
        yield from self.ended()

    def ended(self) -> Iterator[Message]:
        """The messages that waited for the end of a replay."""
        self.is_replaying = False
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for at, new in enumerate(waiting):
            stream = self._stream(new.source)
            if (
                self.replays and new.sequence > stream.next > self._asked
            ):  # missed while the replay ran
                for later in waiting[at:]:
                    self._wait(later)
                self._ask(stream.next)
                return
            yield from stream.put(new)
        self._try_replays()

    def _try_replays(self) -> None:
        """Ask for a batch of a new process again, so that an empty replay can tell its end."""
        if any(each.next and each.is_replayed is None for each in self._streams.values()):
            self.check()

    def _stream(self, source: Source) -> _Stream:
        return self._streams.setdefault(source, _Stream(source, self.endpoint))

    def _wait(self, new: Received) -> None:
        if self._waiting_bytes < self.most_waiting:
            self._waiting.append(new)
            self._waiting_bytes += len(new.payload)

    def _drop_waiting(self, ts: float) -> None:
        """Let go what may be of the process before, made until `ts`; what is not is replayed."""
        self._waiting = [new for new in self._waiting if new.changes.ts > ts]
        self._waiting_bytes = sum(len(new.payload) for new in self._waiting)

    def _ask(self, number: int) -> None:
        # The last batch that is known comes along: by it a new process is told from the old one.
        self.is_replaying, self._asked, self._gives = True, number, False
        self._request = max(0, number - 1)

    def _arrived(self, frames: Sequence[bytes]) -> Received | Lost:
        if len(frames) != _FRAMES or len(frames[1]) != _NUMBER_BYTES:
            why = f"a message of {len(frames)} frames, where a publisher sends {_FRAMES}"
            return Lost(Source("", 0), 0, 0, why, self.endpoint)
        topic, number = frames[0].decode("utf-8", "replace"), int.from_bytes(frames[1], "big")
        try:
            changes = decode_changes(frames[2])
        except EventsError as error:
            return self._unreadable(topic, number, str(error))
        source = Source(topic, changes.data_parallel_rank or 0)
        return Received(source, number, changes, frames[2])

    def _unreadable(self, topic: str, number: int, why: str) -> Lost:
        of_topic = (stream for stream in self._streams.values() if stream.source.topic == topic)
        for stream in of_topic:  # the payload would tell the rank
            if stream.next == number:
                stream.next = number + 1
                return Lost(stream.source, number, number, why, self.endpoint)
        return Lost(Source(topic, 0), number, number, why, self.endpoint)
