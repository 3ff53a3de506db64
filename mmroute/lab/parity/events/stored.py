"""Whether an engine stored and reused the predicted blocks: each of them, and all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.hashing import BlockHashes, PageHashes
from mmroute.kv_events import BlockIndex, BlockRemoved, BlockStored, EventBatch, Residency
from mmroute.kv_events.groups import GPU
from mmroute.kv_events.holders import LowBits, low_bits
from mmroute.lab.engines import Judge
from mmroute.lab.parity.events.chains import event_keys, stored_in
from mmroute.model.resolved import ResolvedModel

_ENGINE: Final = "engine"
# Groups of these kinds keep every block of a prompt.
_KEEPS_ALL: Final = (None, "full_attention", "mla_attention", "sink_full_attention")


@dataclass(slots=True)
class EngineCache:
    """The content of an engine's cache, by the events that it sent."""

    _model: ResolvedModel
    _judge: Judge
    _index: BlockIndex = field(default_factory=BlockIndex)
    _kinds: dict[int | None, str | None] = field(default_factory=dict)
    _sizes: dict[int | None, int] = field(default_factory=dict)
    _hashes: set[LowBits] = field(default_factory=set)

    def enter(self, batches: Iterable[EventBatch]) -> None:
        """Enter what was announced."""
        for batch in batches:
            self._index.apply(_ENGINE, batch)
            for event in stored_in((batch,)):
                self._kinds[event.group_idx] = event.kv_cache_spec_kind
                known = self._sizes.get(event.group_idx, 0)
                self._sizes[event.group_idx] = max(event.block_size, known)
                self._hashes.update(map(low_bits, event.block_hashes))

    def announced(self, routing: Routing) -> bool:
        """Whether a predicted block was ever announced, so that something is compared."""
        try:
            return not self._hashes.isdisjoint(map(low_bits, routing.hashes().event_ints()))
        except (InexactError, ValueError):  # of an algorithm whose seed is not known
            return False

    def reused_tokens(self, routing: Routing) -> int | None:
        """The number of tokens the engine will take from its cache; None if it is not known."""
        try:
            hashes = routing.hashes()
        except (InexactError, ValueError):  # of an algorithm whose seed is not known
            return None
        found = self._judge.reused_tokens(self._model, self._index, routing, hashes)
        return None if len(found) > 1 else next(iter(found.values()), 0)

    def problem(self, routing: Routing, batches: Sequence[EventBatch], *, alone: bool) -> str:
        """The difference between the blocks stored for a request and those predicted, or empty.

        Call it once the request's events were entered.
        """
        try:
            hashes = routing.hashes()
        except ValueError as error:  # of an algorithm whose seed is not known
            return str(error) if any(stored_in(batches)) else ""
        at = {low_bits(block_hash): i for i, block_hash in enumerate(hashes.event_ints())}
        for event in stored_in(batches):
            if not alone and at.keys().isdisjoint(map(low_bits, event.block_hashes)):
                continue
            if wrong := self._wrong_in(event, at, routing, size_of(hashes)):
                return f"{wrong} (group {event.group_idx or 0})"
        if any(isinstance(event, BlockRemoved) for batch in batches for event in batch.events):
            return ""  # what was stored may have been evicted
        return self._missing(hashes)

    def _missing(self, hashes: BlockHashes | PageHashes) -> str:
        """The first block that a group which keeps all blocks does not hold."""
        size_of_hashes = size_of(hashes)
        whole = max(1, math.lcm(*self._sizes.values(), 1) // size_of_hashes)
        kept = len(hashes) // whole * whole
        for rank in self._index.longest_prefixes(()):
            held = self._index.residencies(rank, hashes.event_ints()[:kept])
            for group, size in self._sizes.items():
                step = max(1, size // size_of_hashes)
                here = held.get(Residency(group, GPU, None), ())
                gap = next((i for i in range(step - 1, len(here), step) if not here[i]), None)
                if gap is not None and self._kinds[group] in _KEEPS_ALL:
                    return f"block {gap} of {kept} was never stored in group {group or 0}"
        return ""

    def _wrong_in(
        self, event: BlockStored, at: dict[LowBits, int], routing: Routing, unit: int
    ) -> str:
        """The difference between an event and the prediction; empty if there is none."""
        known = [at.get(low_bits(block_hash)) for block_hash in event.block_hashes]
        blocks = [number for number in known if number is not None]
        if len(blocks) < len(known):
            return f"stored block {known.index(None)} of {len(known)} is not predicted"
        parent = -1
        if event.parent_block_hash is not None:
            found = at.get(low_bits(event.parent_block_hash))
            if found is None:
                return "the parent of a stored block is not predicted"
            parent = found
        told = np.array(event.token_ids)
        # A group with a window may leave out the last blocks as well, but not their tokens.
        covered = max((max(blocks, default=parent) - parent) * unit, len(told))
        ids = self._judge.event_ids(routing)[(parent + 1) * unit :][:covered]
        if event.token_ids and not np.array_equal(ids, told):
            return f"the block behind block {parent} was stored with other tokens, or elsewhere"
        return self._wrong_keys(event, blocks, routing, unit)

    def _wrong_keys(
        self, event: BlockStored, blocks: list[int], routing: Routing, unit: int
    ) -> str:
        if event.extra_keys is None or not event.block_size:
            return ""
        expected = self._judge.event_keys(routing, event.block_size)
        for block, keys in zip(blocks, map(event_keys, event.extra_keys), strict=True):
            if keys != expected[(block + 1) * unit // event.block_size - 1]:
                return f"block {block} was stored with the extra keys {keys}"
        return ""


def size_of(hashes: BlockHashes | PageHashes) -> int:
    """The number of tokens under one hash."""
    return hashes.page_size if isinstance(hashes, PageHashes) else hashes.block_size
