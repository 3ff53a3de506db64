"""The blocks that an engine announced, joined to prompts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmroute.errors import EventsError, Reason, quoted
from mmroute.hashing import EventKeys
from mmroute.kv_events import BlockStored, EventBatch
from mmroute.kv_events.groups import GPU
from mmroute.kv_events.holders import low_bits

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The announced blocks of a prompt, from its first block on."""

    block_size: int  # the number of tokens in a block
    token_ids: npt.NDArray[Any]  # the IDs of all blocks as events have them, shape (n,)
    hashes: tuple[int, ...]  # the low 64 bits of each block's hash
    # The extra keys of each block; None if the engine's events do not have them.
    keys: tuple[EventKeys, ...] | None
    lora_name: str | None  # the name of the adapter; None for no adapter
    # The lookahead tokens of the last block; the other blocks have as many.
    ahead: tuple[int, ...] = ()

    @property
    def salts(self) -> list[str]:
        """The first block's keys that are texts, except the adapter."""
        first = (self.keys or (None,))[0] or ()
        return [key for key in first if isinstance(key, str) and key != self.lora_name]


@dataclass(frozen=True, slots=True)
class _Block:
    parent: int | None
    token_ids: tuple[int, ...]
    keys: EventKeys
    has_keys: bool
    lora_name: str | None
    ahead: tuple[int, ...]


@dataclass(slots=True)
class Chains:
    """All blocks that were announced, also those that the engine has evicted since."""

    _blocks: dict[int, _Block] = field(default_factory=dict)
    _hash_size: int = 0

    def enter(self, batches: Iterable[EventBatch]) -> list[Chain]:
        """The prompts of the blocks in these events, if all their earlier blocks are known.

        Of several KV cache groups those are read whose blocks have the tokens of one hash.
        """
        new: dict[int, None] = {}
        stored = list(stored_in(batches))
        self._hash_size = math.gcd(self._hash_size, *(event.block_size for event in stored))
        for event in filter(self._is_whole, stored):
            new |= dict.fromkeys(self._blocks_of(event))
        parents = {self._blocks[number].parent for number in new}
        return [c for number in new if number not in parents and (c := self._chain(number))]

    def with_hashes(self, hashes: Iterable[int]) -> Chain | None:
        """The prompt up to the last of these hashes that was announced."""
        known = [number for number in hashes if number in self._blocks]
        return self._chain(known[-1]) if known else None

    def _is_whole(self, event: BlockStored) -> bool:
        # An event may leave out blocks of a window or a state, but not their tokens.
        tokens = len(event.block_hashes) * event.block_size
        return 0 < tokens == len(event.token_ids) and event.block_size == self._hash_size

    def _blocks_of(self, event: BlockStored) -> Iterator[int]:
        parent = None if event.parent_block_hash is None else low_bits(event.parent_block_hash)
        size, keys, ahead = event.block_size, event.extra_keys, event.lookahead_token_ids
        for at, block_hash in enumerate(map(low_bits, event.block_hashes)):
            self._blocks[block_hash] = _Block(
                parent,
                event.token_ids[at * size : (at + 1) * size],
                event_keys(keys[at]) if keys else None,
                keys is not None,
                event.lora_name,
                ahead[at] if ahead else (),
            )
            yield block_hash
            parent = block_hash

    def _chain(self, last: int) -> Chain | None:
        hashes: list[int] = []
        blocks: list[_Block] = []
        number: int | None = last
        while number is not None:
            block = self._blocks.get(number)
            if block is None or len(hashes) > len(self._blocks):
                return None  # the block before was announced earlier, or blocks form a circle
            hashes.append(number)
            blocks.append(block)
            number = block.parent
        blocks.reverse()
        told = any(block.has_keys for block in blocks)
        return Chain(
            len(blocks[0].token_ids),
            np.array([i for block in blocks for i in block.token_ids], np.int64),
            tuple(reversed(hashes)),
            tuple(block.keys for block in blocks) if told else None,
            blocks[0].lora_name,
            blocks[-1].ahead,
        )


def stored_in(batches: Iterable[EventBatch]) -> Iterator[BlockStored]:
    """The events of blocks that were stored in the GPU's memory."""
    for batch in batches:
        for event in batch.events:
            if isinstance(event, BlockStored) and event.medium in (None, GPU):
                yield event


def event_keys(keys: tuple[object, ...] | None) -> EventKeys:
    """The extra keys of a block, as an event has them."""
    found: list[str | tuple[str, int]] = []
    for key in keys or ():
        match key:
            case str():
                found.append(key)
            case [str() as identity, int() as offset]:
                found.append((identity, offset))
            case _:
                raise EventsError(
                    Reason.MALFORMED_EVENTS,
                    "an extra key of a block must be a text, or the identity of an item and its "
                    f"offset, found {quoted(key)}",
                )
    return tuple(found) or None
