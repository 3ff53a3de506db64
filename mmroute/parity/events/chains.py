"""Announced blocks, joined to the prompts that they are the beginning of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from mmroute.errors import EventsError, Reason, quoted
from mmroute.geometry import TokenIds
from mmroute.hashing import EventKeys
from mmroute.kv_events import BlockStored, EventBatch
from mmroute.kv_events.holders import low_bits


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Blocks from the first of a prompt on, as the engine announced them.

    Attributes:
        block_size: tokens in a block.
        token_ids: of all blocks, shape (n,), uint32.
        hashes: of each block, its low 64 bits.
        keys: of each block what was hashed beside its tokens; None where the engine does not tell.
        lora_name: the adapter.
        ahead: the tokens behind the last block that its hash covers, too; as many are covered
            behind each.
    """

    block_size: int
    token_ids: TokenIds
    hashes: tuple[int, ...]
    keys: tuple[EventKeys, ...] | None
    lora_name: str | None
    ahead: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    parent: int | None
    token_ids: tuple[int, ...]
    keys: EventKeys
    keys_told: bool
    lora_name: str | None
    ahead: tuple[int, ...]


@dataclass(slots=True)
class Chains:
    """All blocks that were announced, whether they are still held or not."""

    _blocks: dict[int, _Block] = field(default_factory=dict)
    _group: int | None = None

    def enter(self, batches: Iterable[EventBatch]) -> list[Chain]:
        """The prompts of the blocks that these events announce, without those whose begin is not.

        Of hybrid models the first KV cache group that is announced counts.
        """
        new: dict[int, None] = {}
        for batch in batches:
            for event in batch.events:
                if isinstance(event, BlockStored) and self._is_whole(event):
                    new |= dict.fromkeys(self._blocks_of(event))
        parents = {self._blocks[number].parent for number in new}
        return [c for number in new if number not in parents and (c := self._chain(number))]

    def with_hashes(self, hashes: Iterable[int]) -> Chain | None:
        """The prompt that ends with the last of these hashes that was announced."""
        known = [number for number in hashes if number in self._blocks]
        return self._chain(known[-1]) if known else None

    def _is_whole(self, event: BlockStored) -> bool:
        if not event.block_hashes or event.medium not in (None, "GPU"):
            return False
        if self._group is None:
            self._group = event.group_idx
        # Blocks of a sliding window may be left out, and their tokens not.
        tokens = len(event.block_hashes) * event.block_size
        return event.group_idx == self._group and len(event.token_ids) == tokens

    def _blocks_of(self, event: BlockStored) -> Iterator[int]:
        parent = None if event.parent_block_hash is None else low_bits(event.parent_block_hash)
        size, keys, ahead = event.block_size, event.extra_keys, event.lookahead_token_ids
        for at, block_hash in enumerate(map(low_bits, event.block_hashes)):
            self._blocks[block_hash] = _Block(
                parent,
                event.token_ids[at * size : (at + 1) * size],
                _key(keys[at]) if keys else None,
                keys is not None,
                event.lora_name,
                ahead[at] if ahead else (),
            )
            yield block_hash
            parent = block_hash

    def _chain(self, last: int) -> Chain | None:
        hashes, blocks = [], []
        number: int | None = last
        while number is not None:
            block = self._blocks.get(number)
            if block is None:
                return None  # announced before anybody listened
            hashes.append(number)
            blocks.append(block)
            number = block.parent
        blocks.reverse()
        told = any(block.keys_told for block in blocks)
        return Chain(
            len(blocks[0].token_ids),
            np.array([i for block in blocks for i in block.token_ids], np.uint32),
            tuple(reversed(hashes)),
            tuple(block.keys for block in blocks) if told else None,
            blocks[0].lora_name,
            blocks[-1].ahead,
        )


def _key(keys: tuple[object, ...] | None) -> EventKeys:
    """The extra keys of a block.

    Raises:
        EventsError: `malformed_events`.
    """
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
