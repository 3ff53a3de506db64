"""Measure the requests per second of all cores, with one process and one normalizer for each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
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
        per_second: requests, of all processes together.
        distinct: whether no request was asked twice.
    """

    mix: str
    processes: int
    requests: int
    seconds: float
    per_second: float
    distinct: bool


@dataclass(frozen=True, slots=True)
class _Share:
    """The work of one process. Unpickling it loads both normalizers anew."""

    number: int
    normalizer: Normalizer
    reference: Normalizer
    mixes: Sequence[Mix]
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
) -> list[Throughput]:
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
    if not mixes:
        return []
    context = get_context("spawn")
    futures = []
    with ProcessPoolExecutor(processes, context, _keep, (context.Barrier(processes),)) as pool:
        for number in range(processes):
            share = _Share(number, normalizer, reference, mixes, requests)
            with _bound_to_core(number):
                futures.append(pool.submit(_seconds_of_all, share))  # starts a process
        wait(futures)
    errors = [error for future in futures if (error := future.exception()) is not None]
    if any(isinstance(error, BrokenProcessPool) for error in errors):
        raise MmrouteError(
            Reason.SELF_CHECK_FAILED,
            "a process of the throughput measurement ended early; its own message stands above",
        )
    if errors:  # that of one process breaks the barrier of the others
        raise min(errors, key=lambda error: isinstance(error, BrokenBarrierError))
    slowest = map(max, zip(*(future.result() for future in futures), strict=True))
    total = processes * requests
    return [
        Throughput(
            mix=mix.name,
            processes=processes,
            requests=total,
            seconds=seconds,
            per_second=total / seconds,
            distinct=mix.distinct is None or mix.distinct >= total,
        )
        for mix, seconds in zip(mixes, slowest, strict=True)
    ]


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


_barriers: Final[list[Barrier]] = []  # the one of this process


def _keep(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _seconds_of_all(share: _Share) -> list[float]:
    (barrier,) = _barriers
    try:
        return [_seconds(share, mix, barrier) for mix in share.mixes]
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
    quiet()
    barrier.wait(_LONGEST_WAIT)
    started = time.perf_counter()
    # A digest takes less time than to find new memory for every answer, if all were kept.
    digests = [digest(normalize(**request)) for request in asked]
    seconds = time.perf_counter() - started
    for number, found, request in zip(numbers, digests, asked, strict=False):
        if found != digest(share.reference.normalize(**request)):
            raise wrong_answer(number)
    return seconds
