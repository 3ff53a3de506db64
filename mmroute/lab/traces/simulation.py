"""Simulates workers with prefix caches behind routers of several policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice

from mmroute.lab.traces.block_cache import BlockCache
from mmroute.lab.traces.requests import TracedRequest

_CURVE_SIZES = 12
_LARGEST = 1 << 20  # blocks of the largest cache on the curve


class Policy(StrEnum):
    """The policies by which a router picks a worker."""

    ROUND_ROBIN = "round_robin"
    """The workers in turn."""
    SESSION = "session"
    """The worker of the request's conversation."""
    BLOCK_HASHES = "block_hashes"
    """The worker that holds most blocks; the least loaded one if none holds half of them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of routing a trace by one policy."""

    hit_rate: float  # the part of all prompt tokens that was cached, 0 to 1
    computed: int  # the number of tokens that were computed
    imbalance: float  # the tokens that the busiest worker computed, divided by the workers' mean
    too_large: int  # the number of requests with more blocks than a worker has


def simulate(
    requests: Iterable[TracedRequest], policy: Policy, *, workers: int, blocks: int, block_size: int
) -> Outcome:
    """Answer the requests of a trace one after the other, each on the worker of a policy.

    Each of the workers has a cache of so many blocks.
    """
    caches = [BlockCache(blocks) for _ in range(workers)]
    computed = [0] * workers
    tokens = too_large = 0
    answers = count(-1, -1)  # blocks that no prompt has
    for number, request in enumerate(requests):
        if policy is Policy.ROUND_ROBIN:
            worker = number % workers
        elif policy is Policy.SESSION:
            worker = request.session % workers
        else:
            worker = _by_blocks(caches, request, computed)
        # The answer's last token is not computed. Nobody asks for the blocks of the others.
        in_cache = request.num_tokens + max(0, request.output_length - 1)
        hashes = list(request.hashes)
        hashes += islice(answers, in_cache // block_size - len(hashes))
        hits = caches[worker].serve(
            hashes,
            lookup=request.most_cached(block_size),
            ends_in_block=in_cache % block_size > 0,
        )
        tokens += request.num_tokens
        computed[worker] += request.num_tokens - hits * block_size
        too_large += -(-in_cache // block_size) > blocks
    total = sum(computed)
    return Outcome(
        hit_rate=1 - total / tokens if tokens else 0.0,
        computed=total,
        imbalance=max(computed) * workers / total if total else 1.0,
        too_large=too_large,
    )


def _by_blocks(caches: list[BlockCache], request: TracedRequest, computed: list[int]) -> int:
    held = [cache.num_held(request.hashes) for cache in caches]
    most = max(held)
    prefers = most and 2 * most >= len(request.hashes)
    workers = (n for n, blocks in enumerate(held) if blocks == most or not prefers)
    return min(workers, key=computed.__getitem__)


def best_cached(requests: Iterable[TracedRequest], block_size: int) -> tuple[int, int]:
    """The blocks that are found in a cache that loses none, and the different blocks."""
    seen: set[int] = set()
    cached = 0
    for request in requests:
        held = next((n for n, h in enumerate(request.hashes) if h not in seen), len(request.hashes))
        cached += min(held, request.most_cached(block_size))
        seen.update(request.hashes)
    return cached, len(seen)


def curve_sizes(different: int) -> list[int]:
    """The sizes of the caches on the curve: powers of two, up to all of a trace's blocks."""
    largest = min(_LARGEST, 1 << max(0, different - 1).bit_length())
    return [size for n in reversed(range(_CURVE_SIZES)) if (size := largest >> n)]
