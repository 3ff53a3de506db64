"""Simulates workers with prefix and encoder caches behind routers of several policies."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count, cycle, islice
from typing import Final

from mmroute.kv_events.policy import EncoderCache
from mmroute.lab.traces.block_cache import BlockCache
from mmroute.lab.traces.requests import TracedRequest
from mmroute.lab.traces.reuse import Bin, Timeline

_MIN_BLOCKS_SHARE: Final = 0.5  # the least share of cached blocks by which a worker is picked
_MIN_TEXT_SHARE: Final = 0.3  # the default of `cache_threshold` in SGLang's router
_MAX_TEXTS: Final = 1 << 20  # the chunks of text that a router remembers


class Policy(StrEnum):
    """The policies by which a router picks a worker."""

    ROUND_ROBIN = "round_robin"
    """The workers in turn."""
    LEAST_LOAD = "least_load"
    """The worker that computed the fewest tokens so far."""
    SESSION = "session"
    """The worker of the request's conversation."""
    TEXT_PREFIX = "text_prefix"
    """The worker that was sent the longest prefix of the text, in chunks of 256 characters."""
    TOKEN_IDS = "token_ids"
    """The worker that holds most blocks by token IDs alone, which depend on image sizes only."""
    BLOCK_HASHES = "block_hashes"
    """The worker that holds most blocks by the engine's hashes."""


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The number of workers, and the sizes of their caches.

    Attributes:
        workers: the number of workers.
        blocks: the number of blocks in each worker's prefix cache.
        block_size: the number of tokens in a block.
        encoder_tokens: the number of features that each worker's encoder cache holds.
    """

    workers: int
    blocks: int
    block_size: int
    encoder_tokens: int


@dataclass(slots=True)
class Outcome:
    """The outcome of routing a trace by one policy.

    Attributes:
        policy: the policy.
        hit_rate: the part of all prompt tokens that was cached, 0 to 1.
        computed: the number of tokens that were computed.
        imbalance: the tokens that the busiest worker computed, divided by the workers' mean.
        items_in_blocks: the number of items that cached blocks cover, so that they are not needed.
        items_in_encoder: the number of other items whose features were in the encoder cache.
        items_encoded: the number of all other items.
        too_large: the number of requests with more blocks than a worker has.
        over_time: the tokens and cached tokens in the course of the trace.
    """

    policy: Policy
    hit_rate: float = 0.0
    computed: int = 0
    imbalance: float = 1.0
    items_in_blocks: int = 0
    items_in_encoder: int = 0
    items_encoded: int = 0
    too_large: int = 0
    over_time: list[Bin] = field(default_factory=list)


class Fleet:
    """Workers that answer one request after the other, behind one router."""

    def __init__(self, policy: Policy, size: FleetSize) -> None:
        self._size = size
        self._outcome = Outcome(policy)
        workers = range(size.workers)
        self._caches = [BlockCache(size.blocks) for _ in workers]
        self._id_caches = [BlockCache(size.blocks) for _ in workers]
        self._encoders = [EncoderCache(size.encoder_tokens) for _ in workers]
        self._texts: OrderedDict[int, int] = OrderedDict()  # by chunk, the worker it was sent last
        self._computed = [0 for _ in workers]
        self._timeline = Timeline()
        self._turns = cycle(workers)
        self._answers = count(-1, -1)  # blocks that no prompt has
        self._pick: Callable[[TracedRequest], int] = {
            Policy.ROUND_ROBIN: lambda _: next(self._turns),
            Policy.LEAST_LOAD: lambda _: self._least_loaded(),
            Policy.SESSION: lambda request: request.session % size.workers,
            Policy.TEXT_PREFIX: self._by_text,
            Policy.TOKEN_IDS: lambda request: self._by_blocks(
                self._id_caches, request.id_hashes or request.hashes
            ),
            Policy.BLOCK_HASHES: lambda request: self._by_blocks(self._caches, request.hashes),
        }[policy]

    def serve(self, request: TracedRequest) -> None:
        """Send a request to the worker that the policy picks."""
        worker = self._pick(request)
        block_size = self._size.block_size
        # The answer's last token is not computed. Nobody asks for the blocks of the others.
        tokens = request.num_tokens + max(0, request.output_length - 1)
        answer_blocks = list(islice(self._answers, tokens // block_size - len(request.hashes)))
        rest = tokens % block_size > 0
        lookup = request.most_cached(block_size)

        def serve(cache: BlockCache, hashes: list[int]) -> int:
            return cache.serve(hashes + answer_blocks, lookup=lookup, ends_in_block=rest)

        hits = serve(self._caches[worker], request.hashes)
        if self._outcome.policy is Policy.TOKEN_IDS:
            serve(self._id_caches[worker], request.id_hashes or request.hashes)
        if self._outcome.policy is Policy.TEXT_PREFIX:
            self._remember(request.text, worker)
        outcome = self._outcome
        outcome.too_large += -(-tokens // block_size) > self._size.blocks
        cached = hits * block_size
        self._computed[worker] += request.num_tokens - cached
        self._timeline.add(request, cached)
        for item in request.items:
            if item.end <= cached:
                outcome.items_in_blocks += 1
            elif self._encoders[worker].use(item.identity, item.features):
                outcome.items_in_encoder += 1
            else:
                outcome.items_encoded += 1

    def outcome(self) -> Outcome:
        """The outcome of the requests so far."""
        outcome = self._outcome
        outcome.over_time = self._timeline.bins
        outcome.computed = computed = sum(self._computed)
        if computed:
            outcome.hit_rate = 1 - computed / sum(each.tokens for each in outcome.over_time)
            outcome.imbalance = max(self._computed) * len(self._computed) / computed
        return outcome

    def _least_loaded(self) -> int:
        return min(range(len(self._computed)), key=self._computed.__getitem__)

    def _by_text(self, request: TracedRequest) -> int:
        sent = [self._texts[chunk] for chunk in request.text if chunk in self._texts]
        if len(sent) <= _MIN_TEXT_SHARE * len(request.text):
            return self._least_loaded()
        return sent[-1]

    def _remember(self, text: Sequence[int], worker: int) -> None:
        for chunk in text:
            self._texts[chunk] = worker
            self._texts.move_to_end(chunk)
        while len(self._texts) > _MAX_TEXTS:
            self._texts.popitem(last=False)

    def _by_blocks(self, caches: Sequence[BlockCache], hashes: Sequence[int]) -> int:
        held = [cache.num_held(hashes) for cache in caches]
        most = max(held)
        if not most or most < _MIN_BLOCKS_SHARE * len(hashes):
            return self._least_loaded()
        best = [worker for worker, blocks in enumerate(held) if blocks == most]
        return min(best, key=self._computed.__getitem__)
