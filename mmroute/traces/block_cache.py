"""A worker's prefix cache, block by block, as vLLM's pool evicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

_Key: TypeAlias = "int | tuple[int, int]"


class BlockCache:
    """The blocks of one worker, which answers one request after the other.

    A request takes the cached blocks of its beginning, then blocks without content, then the
    blocks that were used longest ago. When it ends, its blocks are the last to be evicted, and
    those at its end go before those at its beginning. A prompt is never taken whole from the
    cache: its last token is computed, with the block in which it is. That block is there twice
    then.

    Source: vLLM 0.33.0 ``v1/core/block_pool.py`` (`get_new_blocks`, `free_blocks`) and
    ``kv_cache_manager.py`` (`get_computed_blocks`), for full attention.

    Args:
        num_blocks: how many blocks the worker has for prompts.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        # The next to be evicted comes first. A block's key is its hash, or (hash, number) if
        # another block had the hash when it was computed: that one is found first.
        self._blocks: OrderedDict[_Key, None] = OrderedDict()
        self._copies: dict[int, list[_Key]] = {}  # by hash, those computed first come first
        self._numbers = count()

    def serve(self, hashes: Sequence[int], *, lookup: int, ends_in_block: bool) -> int:
        """Answer a request.

        Args:
            hashes: of its full blocks, those of its answer at the end.
            lookup: how many first blocks may be taken from the cache: those in front of the
                prompt's last token.
            ends_in_block: whether there are tokens behind the last full block.

        Returns:
            How many of its blocks were cached; 0 for a request that is larger than the cache,
            which changes nothing.
        """
        room = self._num_blocks - len(hashes) - ends_in_block
        if room < 0:
            return 0
        hits = self.num_held(hashes[:lookup])
        blocks, copies = self._blocks, self._copies
        used: list[_Key] = [h if h in blocks else copies[h][0] for h in hashes[:hits]]
        for key in used:
            blocks.move_to_end(key)  # nothing that is in use is evicted
        for _ in range(len(blocks) - hits - room):
            key, _ = blocks.popitem(last=False)
            if not isinstance(key, int):
                self._forget_copy(key)
        new = hashes[hits:]
        if blocks.keys().isdisjoint(new) and copies.keys().isdisjoint(new):
            used += new
        else:
            used += map(self._key, new)
        blocks.update(dict.fromkeys(reversed(used)))
        for key in reversed(used[:hits]):
            blocks.move_to_end(key)
        return hits

    def num_held(self, hashes: Sequence[int]) -> int:
        """How many first blocks of a prompt are cached."""
        blocks, copies = self._blocks, self._copies
        for at, block_hash in enumerate(hashes):
            if block_hash not in blocks and block_hash not in copies:
                return at
        return len(hashes)

    def held(self) -> list[int]:
        """The hashes of the cached blocks, the next to be evicted first."""
        return [key if isinstance(key, int) else key[0] for key in self._blocks]

    def _key(self, block_hash: int) -> _Key:
        """Of a block that is computed now."""
        if block_hash not in self._blocks and block_hash not in self._copies:
            return block_hash
        key = (block_hash, next(self._numbers))
        self._copies.setdefault(block_hash, []).append(key)
        return key

    def _forget_copy(self, key: tuple[int, int]) -> None:
        copies = self._copies[key[0]]
        copies.remove(key)
        if not copies:
            del self._copies[key[0]]
