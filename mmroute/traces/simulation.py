"""Workers with prefix caches behind routers of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mmroute.traces.block_cache import BlockCache
from mmroute.traces.requests import Hashes, TracedRequest

__all__ = ["Fleet", "Outcome", "Policy", "hit_rates"]

_WORTH_FOLLOWING: Final = 0.5  # of a prompt; with less, the least loaded worker gets it


class Policy(StrEnum):
    """How a router picks a worker."""

    ROUND_ROBIN = "round_robin"
    """One after the other."""
    LEAST_LOAD = "least_load"
    """The worker that computed the fewest tokens so far."""
    SESSION = "session"
    """Each conversation has its worker."""
    TEXT_PREFIX = "text_prefix"
    """The worker that was sent most of the request's text, 256 characters at a time."""
    TOKEN_IDS = "token_ids"
    """The worker that holds most blocks by token IDs alone: images of one size look the same."""
    BLOCK_HASHES = "block_hashes"
    """The worker that holds most blocks by their hashes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy made of a trace.

    Attributes:
        policy: the policy.
        hit_rate: cached tokens of all tokens, 0 to 1.
        computed: tokens that were computed.
        imbalance: tokens computed by the busiest worker, of the mean.
        item_hit_rate: items whose features their worker had seen before, of all items.
    """

    policy: Policy
    hit_rate: float
    computed: int
    imbalance: float
    item_hit_rate: float


class Fleet:
    """Workers behind one router.

    Args:
        policy: how the router picks.
        workers: how many.
        blocks: of each worker's cache.
        block_size: tokens in a block.
    """

    def __init__(self, policy: Policy, workers: int, blocks: int, block_size: int) -> None:
        self._policy = policy
        self._block_size = block_size
        self._caches = [BlockCache(blocks) for _ in range(workers)]
        self._id_caches = [BlockCache(blocks) for _ in range(workers)]
        self._texts: dict[int, int] = {}  # by chunk, the last worker that was sent it
        self._computed = [0] * workers
        self._items: list[set[str]] = [set() for _ in range(workers)]
        self._requests = self._tokens = self._num_items = self._item_hits = 0
        self._pick: Callable[[TracedRequest], int] = {
            Policy.ROUND_ROBIN: lambda _: self._requests % workers,
            Policy.LEAST_LOAD: lambda _: self._least_loaded(),
            Policy.SESSION: lambda request: request.session % workers,
            Policy.TEXT_PREFIX: self._by_text,
            Policy.TOKEN_IDS: lambda request: self._by_blocks(self._id_caches, request.id_hashes),
            Policy.BLOCK_HASHES: lambda request: self._by_blocks(self._caches, request.hashes),
        }[policy]

    def serve(self, request: TracedRequest) -> None:
        """Send one request to a worker."""
        worker = self._pick(request)
        rest = len(request.hashes) * self._block_size < request.num_tokens
        hits = self._caches[worker].serve(request.hashes.tolist(), ends_in_block=rest)
        if self._policy is Policy.TOKEN_IDS:
            self._id_caches[worker].serve(request.id_hashes.tolist(), ends_in_block=rest)
        if self._policy is Policy.TEXT_PREFIX:
            self._texts.update(dict.fromkeys(request.chunks, worker))
        self._requests += 1
        self._tokens += request.num_tokens
        self._computed[worker] += request.num_tokens - hits * self._block_size
        self._num_items += len(request.items)
        self._item_hits += sum(item in self._items[worker] for item in request.items)
        self._items[worker].update(request.items)

    def outcome(self) -> Outcome:
        """What came of the requests so far."""
        computed = sum(self._computed)
        return Outcome(
            policy=self._policy,
            hit_rate=1 - computed / self._tokens if self._tokens else 0.0,
            computed=computed,
            imbalance=max(self._computed) * len(self._computed) / computed if computed else 1.0,
            item_hit_rate=self._item_hits / self._num_items if self._num_items else 0.0,
        )

    def _least_loaded(self) -> int:
        return min(range(len(self._computed)), key=self._computed.__getitem__)

    def _by_text(self, request: TracedRequest) -> int:
        sent = [self._texts[chunk] for chunk in request.chunks if chunk in self._texts]
        if len(sent) < _WORTH_FOLLOWING * len(request.chunks) or not sent:
            return self._least_loaded()
        return sent[-1]

    def _by_blocks(self, caches: Sequence[BlockCache], hashes: Hashes) -> int:
        looked_up = hashes.tolist()
        held = [cache.num_held(looked_up) for cache in caches]
        most = max(held)
        if not most or most < _WORTH_FOLLOWING * len(hashes):
            return self._least_loaded()
        best = [worker for worker, count in enumerate(held) if count == most]
        return min(best, key=self._computed.__getitem__)


def hit_rates(
    requests: Iterable[TracedRequest], capacities: Sequence[int], block_size: int
) -> list[tuple[int, float]]:
    """The hit rate of one worker that gets all requests, by the size of its cache in blocks."""
    fleets = [Fleet(Policy.ROUND_ROBIN, 1, capacity, block_size) for capacity in capacities]
    for request in requests:
        for fleet in fleets:
            fleet.serve(request)
    rates = [fleet.outcome().hit_rate for fleet in fleets]
    return list(zip(capacities, rates, strict=True))
