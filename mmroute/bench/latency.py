"""Measure the latency of a mix of requests, whole and by stage."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import xxhash

from mmroute.bench.mixes import Mix
from mmroute.errors import InexactError, MmrouteError, Reason
from mmroute.fast_paths import ReuseStats
from mmroute.normalizer import Normalizer
from mmroute.routing import Routing
from mmroute.stages import Stage, Stopwatch

__all__ = ["Hashing", "Latency", "Summary", "digest", "measure_latency", "quiet", "wrong_answer"]

_WARM_UP: Final = 5
# Their numbers are none that a measured request has.
_UNTIMED: Final = range(1_000_000_000, 1_000_000_000 + _WARM_UP)


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
class Summary:
    """Percentiles of one kind of measurement.

    Attributes:
        p50: the median, in microseconds.
        p95: 95 of 100 were not longer, in microseconds.
        p99: 99 of 100 likewise.
        samples: how many were measured.
    """

    p50: float
    p95: float
    p99: float
    samples: int

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Summary:
        """The percentiles of at least one time.

        >>> Summary.of([1000, 3000, 2000])
        Summary(p50=2.0, p95=2.9, p99=2.98, samples=3)
        """
        p50, p95, p99 = np.percentile(np.asarray(nanoseconds) / 1000, (50, 95, 99)).round(2)
        return cls(float(p50), float(p95), float(p99), len(nanoseconds))


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of the requests of one mix.

    Attributes:
        mix: its name.
        says: what is in a request.
        token_ids: in an expanded prompt; the median.
        images: in a request; the median.
        whole_us: a request, without block hashes.
        without_encoding_us: the same requests, each less its own encode stage.
        stages_us: each stage that the requests have.
        no_hashes: why there are no block hashes; None if there are.
        text_reuse: what the cache of texts did meanwhile; None without one.
        hash_reuse: the same for block hashes.
    """

    mix: str
    says: str
    token_ids: int
    images: int
    whole_us: Summary
    without_encoding_us: Summary
    stages_us: Mapping[Stage, Summary]
    no_hashes: str | None
    text_reuse: ReuseStats | None
    hash_reuse: ReuseStats | None


def measure_latency(
    normalizer: Normalizer,
    reference: Normalizer,
    mix: Mix,
    *,
    repeat: int,
    hashing: Hashing,
) -> Latency:
    """Time a mix.

    Args:
        normalizer: the one that is timed, with its caches.
        reference: the same model without fast paths; every timed answer is compared with its.
        mix: the requests.
        repeat: how many are timed.
        hashing: how block hashes are asked for.

    Raises:
        InexactError: a request has no answer.
        MmrouteError: an answer differs from the reference's.
    """
    expected = [_expected(reference.normalize(**mix.request(n)), hashing) for n in range(repeat)]
    for request in (*mix.before(), *map(mix.request, _UNTIMED)):
        _hashed(normalizer.normalize(**request), hashing)
    before = normalizer.stats()
    quiet()
    timed = _time_requests(normalizer, mix, expected, hashing)
    after = normalizer.stats()
    whole = [spent for spent, _ in timed]
    times = {stage: [stages.get(stage, 0) for _, stages in timed] for stage in Stage}
    rest = [each - encoding for each, encoding in zip(whole, times[Stage.ENCODE], strict=True)]
    no_hashes = next((str(e.hashes) for e in expected if isinstance(e.hashes, str)), None)
    if no_hashes is not None:
        del times[Stage.HASH]
    text_reuse = [stats.encoder.reuse if stats.encoder else None for stats in (before, after)]
    return Latency(
        mix=mix.name,
        says=mix.says,
        token_ids=int(np.median([e.token_ids for e in expected])),
        images=int(np.median([e.images for e in expected])),
        whole_us=Summary.of(whole),
        without_encoding_us=Summary.of(rest),
        stages_us={stage: Summary.of(found) for stage, found in times.items() if any(found)},
        no_hashes=no_hashes,
        text_reuse=_between(*text_reuse),
        hash_reuse=_between(before.hashes, after.hashes),
    )


def quiet() -> None:
    """Keep the garbage collector from walking through what is held by now."""
    gc.collect()
    gc.freeze()


def digest(routing: Routing) -> str:
    """What an answer is known by when it is compared: so none of them has to be kept."""
    placeholders = repr(routing.placeholders).encode()
    return xxhash.xxh3_128_hexdigest(routing.token_ids.tobytes() + placeholders)


def wrong_answer(number: int) -> MmrouteError:
    """The error of a run: the time of a wrong answer says nothing."""
    return MmrouteError(
        Reason.SELF_CHECK_FAILED,
        f"timed request {number} has another answer than the reference gives; nothing is "
        "reported. Please report this, with `mmroute doctor` of the model",
    )


@dataclass(frozen=True, slots=True)
class _Expected:
    """The reference's answer to a request."""

    digest: str
    token_ids: int
    images: int
    hashes: tuple[bytes, ...] | str


def _expected(routing: Routing, hashing: Hashing) -> _Expected:
    found = digest(routing), len(routing.token_ids), len(routing.placeholders)
    return _Expected(*found, _hashed(routing, hashing))


def _hashed(routing: Routing, hashing: Hashing) -> tuple[bytes, ...] | str:
    """Block hashes, or why there are none."""
    try:
        return hashing.of(routing)
    except InexactError as error:
        return f"{error.reason}: {error}"


def _time_requests(
    normalizer: Normalizer, mix: Mix, expected: Sequence[_Expected], hashing: Hashing
) -> list[tuple[int, dict[Stage, int]]]:
    """What each request takes, whole and by stage; and its block hashes, right after it."""
    watch = Stopwatch()
    watched = replace(normalizer, watch=watch)
    times = []
    for number, right in enumerate(expected):
        # Made just now, as a server has just read it: its text is in the processor's cache.
        request = mix.request(number)
        watch.start()
        started = time.perf_counter_ns()
        routing = watched.normalize(**request)
        whole = time.perf_counter_ns() - started
        stages = watch.spent()
        started = time.perf_counter_ns()
        hashes = _hashed(routing, hashing)
        stages[Stage.HASH] = time.perf_counter_ns() - started
        times.append((whole, stages))
        if not routing.exact or digest(routing) != right.digest or hashes != right.hashes:
            raise wrong_answer(number)
    return times


def _between(before: ReuseStats | None, after: ReuseStats | None) -> ReuseStats | None:
    if before is None or after is None:
        return None
    return after._replace(
        hits=after.hits - before.hits,
        misses=after.misses - before.misses,
        reused=after.reused - before.reused,
    )
