"""The blocks that the replicas of a deployment hold, from their events and from sent prompts."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mmroute.errors import quoted
from mmroute.kv_events import (
    BlockIndex,
    BlockRemoved,
    BlockStored,
    EventBatch,
    Received,
    Subscriber,
)
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import EncoderCache, PromptItem

_LOG: Final = logging.getLogger(__name__)
_TICK: Final = 0.1  # seconds after which a thread checks whether it is to end
_FULL: Final = 256  # messages read at once; if there are so many, more may be waiting


class Endpoints(NamedTuple):
    """The addresses of a replica's events.

    Attributes:
        events: the address of the events, such as ``tcp://10.0.0.7:5557``.
        replays: the address for missed events; None if there is none.
    """

    events: str
    replays: str | None


@dataclass(slots=True)
class _Follower:
    """The thread that reads one replica's events.

    Attributes:
        ending: an event that is set when the replica is gone.
        current: the time, by the monotonic clock, at which all events had last been read.
    """

    ending: threading.Event = field(default_factory=threading.Event)
    current: float = float("-inf")


class _Expected(NamedTuple):
    deadline: float
    replica: str
    hashes: tuple[bytes, ...]
    encoded: tuple[PromptItem, ...]


class ReplicaCaches:
    """Follows the events of replicas, each in a thread.

    A replica announces a prompt's blocks only when they are computed. Until then they are expected
    at the replica to which the prompt was sent, so that another request with the same images goes
    there, too.
    """

    def __init__(
        self, *, max_staleness: float, expect_seconds: float, encoder_cache: int = 0
    ) -> None:
        self._max_staleness = max_staleness
        self._expect_seconds = expect_seconds
        self._index = BlockIndex()
        self._expected_index = BlockIndex()
        self._expected: dict[str, _Expected] = {}  # by request, the first to expire first
        self._followers: dict[str, _Follower] = {}
        self._encoder_cache = encoder_cache
        self._encoders: dict[str, EncoderCache] = {}

    def follow(self, replicas: Mapping[str, Endpoints | None]) -> None:
        """Follow these replicas, and forget all others."""
        for name in self._followers.keys() - replicas.keys():
            self._followers.pop(name).ending.set()
        for name in self._encoders.keys() - replicas.keys():
            del self._encoders[name]
        for request, expected in list(self._expected.items()):
            if expected.replica not in replicas:
                del self._expected[request]
                self._expected_index.remove_worker(expected.replica)
        for name, endpoints in replicas.items():
            if endpoints is not None and name not in self._followers:
                follower = self._followers[name] = _Follower()
                threading.Thread(
                    target=self._read,
                    args=(name, endpoints, follower),
                    name=f"mmroute-events-{name}",
                    daemon=True,
                ).start()

    def encoder(self, replica: str) -> EncoderCache:
        """The encoder cache of a replica, with the items that it encoded last."""
        return self._encoders.setdefault(replica, EncoderCache(self._encoder_cache))

    def expect(
        self,
        request: str,
        replica: str,
        hashes: Sequence[bytes],
        encoded: Sequence[PromptItem] = (),
    ) -> None:
        """Expect the blocks of a request at the replica to which it is about to be sent."""
        self._forget(request)
        expected = _Expected(
            time.monotonic() + self._expect_seconds, replica, tuple(hashes), tuple(encoded)
        )
        stored = BlockStored(expected.hashes, None, (), 0, None, None, None)
        self._expected_index.apply(replica, EventBatch(0.0, (stored,)))
        self._expected[request] = expected

    def routed(self, request: str, replica: str) -> None:
        """Record the replica to which a request was sent in the end."""
        expected = self._expected.get(request)
        if expected is None:
            return
        if expected.replica != replica:
            self.expect(request, replica, expected.hashes, expected.encoded)
        for item in expected.encoded:
            self.encoder(replica).use(item.identity, item.features)

    def sent(self, replica: str) -> int:
        """The number of sent prompts whose blocks are expected at a replica."""
        self._expire()
        return sum(expected.replica == replica for expected in self._expected.values())

    def block_size(self) -> int | None:
        """The number of tokens under one hash, as the first replica's events tell it.

        Replicas of a deployment are alike. None before the first block.
        """
        sizes = map(self._index.block_size, self._followers)
        return next(filter(None, sizes), None)

    def longest_prefixes(
        self, hashes: Sequence[bytes], *, medium: str | None = None
    ) -> Mapping[str, Blocks]:
        """The number of leading blocks of a prompt that each replica holds, or is about to hold."""
        self._expire()
        oldest = time.monotonic() - self._max_staleness
        lengths: defaultdict[str, Blocks] = defaultdict(lambda: Blocks(0))
        for (replica, _), length in self._index.longest_prefixes(hashes, medium=medium).items():
            follower = self._followers.get(replica)
            if follower is not None and follower.current >= oldest:
                lengths[replica] = max(lengths[replica], length)
        for (replica, _), length in self._expected_index.longest_prefixes(hashes).items():
            lengths[replica] = max(lengths[replica], length)
        return lengths

    def _expire(self) -> None:
        now = time.monotonic()
        while self._expected:
            request, expected = next(iter(self._expected.items()))
            if expected.deadline > now:
                return
            self._forget(request)

    def _forget(self, request: str) -> None:
        expected = self._expected.pop(request, None)
        if expected is not None:
            removed = EventBatch(0.0, (BlockRemoved(expected.hashes, None),))
            self._expected_index.apply(expected.replica, removed)

    def _read(self, replica: str, endpoints: Endpoints, follower: _Follower) -> None:
        try:
            with Subscriber(endpoints.events, replay_endpoint=endpoints.replays) as subscriber:
                while not follower.ending.is_set():
                    messages = subscriber.receive(_TICK)
                    for message in messages:
                        if not isinstance(message, Received):
                            _LOG.info("forgetting the blocks of %s: %s", replica, message)
                            self._encoders.pop(replica, None)
                        self._index.apply(replica, message)
                    if len(messages) < _FULL:
                        follower.current = time.monotonic()
        except Exception:  # noqa: BLE001 - a thread; without its events the replica gets requests by load
            _LOG.exception("no events of %s from %s", replica, quoted(endpoints.events))
        finally:
            self._index.remove_worker(replica)
