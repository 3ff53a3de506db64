"""Measure the requests per second of all cores, with one process and one normalizer for each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Final

from mmroute.bench.latency import digest, quiet, wrong_answer
from mmroute.bench.mixes import Mix
from mmroute.errors import MmrouteError, Reason
from mmroute.normalizer import Normalizer

__all__ = ["Throughput", "cores", "measure_throughput"]

_WARM_UP: Final = 20
_LONGEST_WAIT: Final = 600.0  # seconds, in which every process has loaded its model


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of all processes together.

    Attributes:
        mix: its name.
        processes: how many there were.
        requests: answered by all of them.
        seconds: until the slowest of them was ready, from a common start.
        distinct: whether no request was asked twice.
    """

    mix: str
    processes: int
    requests: int
    seconds: float
    distinct: bool

    @property
    def per_second(self) -> float:
        """Requests per second, of all processes together."""
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class _Share:
    """The work of one process. Unpickling it loads both normalizers anew."""

    number: int
    normalizer: Normalizer
    reference: Normalizer
    mixes: tuple[Mix, ...]
    requests: int


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def measure_throughput(
    normalizer: Normalizer,
    reference: Normalizer,
    mixes: Sequence[Mix],
    *,
    processes: int,
    requests: int,
) -> tuple[Throughput, ...]:
    """Let processes answer at the same time, one mix after the other.

    Args:
        normalizer: made by `from_pretrained`; each process loads it anew.
        reference: likewise; every answer is compared with its, after the time was taken.
        mixes: requests that all have an answer.
        processes: how many, at least 1; each is bound to one core where that can be done.
        requests: of each mix, for each process.

    Raises:
        MmrouteError: a process ended early, or its answers were wrong.
    """
    context = get_context("spawn")
    barrier = context.Barrier(processes)
    running = []
    try:
        for number in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            share = _Share(number, normalizer, reference, tuple(mixes), requests)
            process = context.Process(target=_work, args=(share, barrier, theirs), daemon=True)
            with _bound_to_core(number):
                process.start()
            theirs.close()  # or its end would not be noticed
            running.append((process, ours))
        received = [_received(ours) for _, ours in running]
    finally:
        for process, ours in running:
            ours.close()
            process.terminate()
            process.join()
    slowest = [max(seconds) for seconds in zip(*_checked(received), strict=True)]
    total = processes * requests
    return tuple(
        Throughput(
            mix.name, processes, total, seconds, mix.distinct is None or mix.distinct >= total
        )
        for mix, seconds in zip(mixes, slowest, strict=True)
    )


@contextlib.contextmanager
def _bound_to_core(number: int) -> Iterator[None]:
    """What is started meanwhile stays on one core, with all the threads of its libraries."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = cores()
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _received(ours: Connection) -> list[float] | MmrouteError | None:
    """What a process found; None if it ended without a word."""
    try:
        found: list[float] | MmrouteError = ours.recv()
    except EOFError:
        return None
    return found


def _checked(received: Sequence[list[float] | MmrouteError | None]) -> list[list[float]]:
    """The seconds of all; or the error of one, which may have ended the others."""
    for found in received:
        if isinstance(found, MmrouteError):
            raise found
    seconds = [found for found in received if isinstance(found, list)]
    if len(seconds) < len(received):
        raise MmrouteError(
            Reason.SELF_CHECK_FAILED,
            "a process of the throughput measurement ended early; its own message stands above",
        )
    return seconds


def _work(share: _Share, barrier: Barrier, theirs: Connection) -> None:
    try:
        theirs.send([_seconds(share, mix, barrier) for mix in share.mixes])
    except MmrouteError as error:
        barrier.abort()
        theirs.send(error)
    except BrokenBarrierError:
        theirs.close()  # another process has sent the error, or none has
    except BaseException:
        barrier.abort()
        raise


def _seconds(share: _Share, mix: Mix, barrier: Barrier) -> float:
    """What one process needs for its requests, which no other process has."""
    first = share.number * (share.requests + _WARM_UP)
    numbers = range(first, first + share.requests + _WARM_UP)
    asked = [mix.request(number) for number in numbers]
    normalize = share.normalizer.normalize
    for request in (*mix.before(), *asked[share.requests :]):
        normalize(**request)
    asked = asked[: share.requests]
    with quiet():
        barrier.wait(_LONGEST_WAIT)
        started = time.perf_counter()
        # A digest takes less time than to find new memory for every answer, if all were kept.
        digests = [digest(normalize(**request)) for request in asked]
        seconds = time.perf_counter() - started
    for number, found, request in zip(numbers, digests, asked, strict=False):
        if found != digest(share.reference.normalize(**request)):
            raise wrong_answer(number)
    return seconds
