"""The size of an index of blocks, and the state of its workers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.streams import Lost, Restarted


@dataclass(slots=True)
class WorkerHealth:
    """The messages of one worker, counted.

    Attributes:
        heard_at: when it was heard of last, in seconds of `time.monotonic`. An idle engine
            publishes nothing, so silence alone is no fault.
        lag: seconds from the making of its last batch, by the worker's clock, to its entry here.
        batches: the number of batches that were entered.
        gaps: the number of times batches were lost. Each time all of its blocks were forgotten.
        lost_batches: the number of batches that were lost.
        restarts: the number of times another process took its place.
    """

    heard_at: float = field(default_factory=time.monotonic)
    lag: float = 0.0
    batches: int = 0
    gaps: int = 0
    lost_batches: int = 0
    restarts: int = 0

    def enter(self, ts: float) -> None:
        """Count a batch that was made at `ts`, in seconds since the epoch."""
        self.heard_at, self.lag = time.monotonic(), time.time() - ts
        self.batches += 1

    def interrupt(self, message: Lost | Restarted) -> None:
        """Count what made its blocks unknown."""
        self.heard_at = time.monotonic()
        if isinstance(message, Lost):
            self.gaps += 1
            self.lost_batches += message.last - message.first + 1
        else:
            self.restarts += 1


@dataclass(frozen=True, slots=True)
class Health:
    """The size of an index, and the state of its workers.

    Attributes:
        blocks: different blocks in each residency, with those that wait to be swept away.
        bytes: memory of the tables. Python's own objects, some 500 bytes a rank, are not in it.
        ranks: data-parallel ranks of all workers.
        workers: the state of each worker's events, by its name.
    """

    blocks: Blocks
    bytes: int
    ranks: int
    workers: dict[str, WorkerHealth]


@dataclass(frozen=True, slots=True)
class SubscriberState:
    """The connections of one subscriber, and what it received.

    Attributes:
        endpoint: the address of the events, as it was given to the subscriber.
        connected: the number of publishers that are connected now.
        replays: whether replays are answered, as far as is known; None without a replay endpoint.
        health: the messages, counted. Until the first one, `WorkerHealth.heard_at` is the time at
            which the subscriber was made.
    """

    endpoint: str
    connected: int
    replays: bool | None
    health: WorkerHealth
