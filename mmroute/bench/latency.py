"""Measure the latency of a mix of requests, whole and by stage."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import xxhash

from mmroute.bench.mixes import Inexact, Mix
from mmroute.bench.summary import Summary, summarize
from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.fast_paths import ReuseStats
from mmroute.normalizer import Normalizer
from mmroute.routing import Routing
from mmroute.stages import Stage, Stopwatch

__all__ = [
    "Hashing",
    "Latency",
    "WrongAnswerError",
    "digest",
    "measure_latency",
    "quiet",
    "wrong_answer",
]

_WARM_UP: Final = 5
_WAYS: Final = 2  # without block hashes, and with them
# Their numbers are none that a measured request has.
_UNTIMED: Final = range(1_000_000_000, 1_000_000_000 + _WARM_UP)


class WrongAnswerError(MmrouteError):
    """A timed answer differs from the reference's, so its time means nothing."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.SELF_CHECK_FAILED, message)


@dataclass(frozen=True, slots=True)
class Hashing:
    """The settings of block hashes.

    Attributes:
        algorithm: the engine's ``--prefix-caching-hash-algo``.
        block_size: tokens.
        seed: the engine's PYTHONHASHSEED.
    """

    algorithm: str = "sha256"
    block_size: int = 16
    seed: str | None = "0"

    def of(self, routing: Routing) -> tuple[bytes, ...]:
        """The block hashes of an answer."""
        hashes = routing.block_hashes(self.algorithm, block_size=self.block_size, seed=self.seed)
        return hashes.hashes


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of the requests of one mix.

    Attributes:
        mix: its name.
        says: what is in a request.
        token_ids: in an expanded prompt; the median.
        images: in a request; the median.
        whole: a request, without block hashes.
        without_encoding: the same requests, each less its own encode stage.
        stages: each stage that the requests have.
        no_hashes: why there are no block hashes; empty if there are.
        text_reuse: what the cache of texts did meanwhile; None without one.
        hash_reuse: the same for block hashes.
        inexact: requests that have no answer, and were not timed.
    """

    mix: str
    says: str
    token_ids: int
    images: int
    whole: Summary
    without_encoding: Summary
    stages: Mapping[Stage, Summary]
    no_hashes: str
    text_reuse: ReuseStats | None
    hash_reuse: ReuseStats | None
    inexact: tuple[Inexact, ...]


def measure_latency(
    normalizer: Normalizer,
    reference: Normalizer,
    mix: Mix,
    *,
    repeat: int,
    hashing: Hashing,
) -> Latency | tuple[Inexact, ...]:
    """Time a mix; where no request has an answer, the reasons.

    Args:
        normalizer: the one that is timed, with its caches.
        reference: the same model without fast paths; every timed answer is compared with its.
        mix: the requests.
        repeat: how many are timed; as many others with block hashes.
        hashing: how block hashes are asked for.

    Raises:
        WrongAnswerError: an answer differs from the reference's.
    """
    if mix.distinct == 0:
        return mix.inexact
    # Of a file, each request is timed in all ways; elsewhere no request is asked twice.
    step = 1 if mix.distinct is None else _WAYS
    numbers = [number // step for number in range(_WAYS * repeat)]
    expected, inexact = _expected(reference, mix, numbers, hashing)
    numbers = [number for number in numbers if number in expected]
    if len(numbers) < _WAYS:
        return (*mix.inexact, *inexact)
    for request in (*mix.before(), *map(mix.request, _UNTIMED)):
        _hashed(normalizer.normalize(**request), hashing)
    before = normalizer.stats()
    with quiet():
        whole, samples = _time_requests(normalizer, mix, numbers[::_WAYS], expected)
        hash_times = _time_hashes(normalizer, mix, numbers[1::_WAYS], expected, hashing)
    after = normalizer.stats()
    no_hashes = next((e.no_hashes for e in expected.values() if e.no_hashes), "")
    times = {stage: [s.get(stage, 0) for s in samples] for stage in Stage}
    rest = [each - encoding for each, encoding in zip(whole, times[Stage.ENCODE], strict=True)]
    times[Stage.HASH] = [] if no_hashes else hash_times
    text_reuse = [stats.encoder.reuse if stats.encoder else None for stats in (before, after)]
    return Latency(
        mix=mix.name,
        says=mix.says,
        token_ids=int(np.median([e.token_ids for e in expected.values()])),
        images=int(np.median([e.images for e in expected.values()])),
        whole=summarize(whole),
        without_encoding=summarize(rest),
        stages={stage: summarize(found) for stage, found in times.items() if any(found)},
        no_hashes=no_hashes,
        text_reuse=_between(*text_reuse),
        hash_reuse=_between(before.hashes, after.hashes),
        inexact=(*mix.inexact, *inexact),
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collector from walking through what the benchmark itself holds."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def digest(routing: Routing) -> str:
    """What an answer is known by when it is compared: so none of them has to be kept."""
    placeholders = repr(routing.placeholders).encode()
    return xxhash.xxh3_128_hexdigest(routing.token_ids.tobytes() + placeholders)


def wrong_answer(number: int) -> WrongAnswerError:
    """The refusal to report anything."""
    return WrongAnswerError(
        f"timed request {number} has another answer than the reference gives; nothing is "
        "reported. Please report this, with `mmroute doctor` of the model"
    )


@dataclass(frozen=True, slots=True)
class _Expected:
    """The reference's answer to a request."""

    digest: str
    token_ids: int
    images: int
    hashes: tuple[bytes, ...] | None
    no_hashes: str


def _expected(
    reference: Normalizer, mix: Mix, numbers: Sequence[int], hashing: Hashing
) -> tuple[dict[int, _Expected], list[Inexact]]:
    """By number: the answers, and the requests without."""
    expected: dict[int, _Expected] = {}
    inexact: list[Inexact] = []
    for number in dict.fromkeys(numbers):
        routing = reference.normalize(**mix.request(number))
        if routing.reason is not None:
            inexact.append(Inexact(f"request {number}", routing.reason.value, routing.message))
            continue
        hashes, no_hashes = None, ""
        try:
            hashes = hashing.of(routing)
        except InexactError as error:
            no_hashes = f"{error.reason}: {error}"
        expected[number] = _Expected(
            digest(routing), len(routing.token_ids), len(routing.placeholders), hashes, no_hashes
        )
    return expected, inexact


def _time_requests(
    normalizer: Normalizer, mix: Mix, numbers: Sequence[int], expected: Mapping[int, _Expected]
) -> tuple[list[int], list[dict[Stage, int]]]:
    """What each request takes, whole and by stage."""
    watch = Stopwatch()
    timed = replace(normalizer, watch=watch)
    whole, stages = [], []
    for number in numbers:
        # Made just now, as a server has just read it: its text is in the processor's cache.
        request = mix.request(number)
        watch.start()
        started = time.perf_counter_ns()
        routing = timed.normalize(**request)
        whole.append(time.perf_counter_ns() - started)
        stages.append(watch.spent())
        _check(number, routing, expected)
    return whole, stages


def _time_hashes(
    normalizer: Normalizer,
    mix: Mix,
    numbers: Sequence[int],
    expected: Mapping[int, _Expected],
    hashing: Hashing,
) -> list[int]:
    """The block hashes alone, right after their request."""
    times = []
    for number in numbers:
        routing = normalizer.normalize(**mix.request(number))
        started = time.perf_counter_ns()
        hashes = _hashed(routing, hashing)
        times.append(time.perf_counter_ns() - started)
        _check(number, routing, expected)
        if hashes != expected[number].hashes:
            raise wrong_answer(number)
    return times


def _check(number: int, routing: Routing, expected: Mapping[int, _Expected]) -> None:
    if not routing.exact or digest(routing) != expected[number].digest:
        raise wrong_answer(number)


def _hashed(routing: Routing, hashing: Hashing) -> tuple[bytes, ...] | None:
    try:
        return hashing.of(routing)
    except InexactError:
        return None


def _between(before: ReuseStats | None, after: ReuseStats | None) -> ReuseStats | None:
    if before is None or after is None:
        return None
    return ReuseStats(
        after.hits - before.hits,
        after.misses - before.misses,
        after.reused - before.reused,
        after.entries,
        after.kept_bytes,
    )
