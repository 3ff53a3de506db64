"""A simulated prefix cache of a worker, which evicts blocks as vLLM's pool does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

_Key: TypeAlias = "int | tuple[int, int]"


class BlockCache:
    """The blocks of one worker, which answers one request after the other.

    A request takes the cached blocks of its prefix, then empty blocks, then the least recently used
    blocks. When it ends, its blocks become the most recently used ones. Of these, blocks at its end
    are evicted before those at its beginning. Even if all of a prompt is cached, its last token is
    computed, together with the block that has it. That block is then in the cache twice.

    Source: vLLM ``v1/core/block_pool.py`` (`get_new_blocks`, `free_blocks`) and
    ``kv_cache_manager.py`` (`get_computed_blocks`), for full attention.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        # In the order of eviction. A block's key is its hash. If another block had that hash when
        # this one was computed, the key is (hash, number), and lookups find the other block first.
        self._blocks: OrderedDict[_Key, None] = OrderedDict()
        self._copies: dict[int, list[_Key]] = {}  # by hash, in the order of computation
        self._numbers = count()

    def serve(self, hashes: Sequence[int], *, lookup: int, ends_in_block: bool) -> int:
        """Answer a request."""
        room = self._num_blocks - len(hashes) - ends_in_block
        if room < 0:
            return 0
        hits = self.num_held(hashes[:lookup])
        blocks, copies = self._blocks, self._copies
        used: list[_Key] = [h if h in blocks else copies[h][0] for h in hashes[:hits]]
        for key in used:
            blocks.move_to_end(key)  # blocks in use are not evicted
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
        """The number of first blocks of a prompt that are cached."""
        blocks, copies = self._blocks, self._copies
        for at, block_hash in enumerate(hashes):
            if block_hash not in blocks and block_hash not in copies:
                return at
        return len(hashes)

    def held(self) -> list[int]:
        """The hashes of the cached blocks, in the order of eviction."""
        return [key if isinstance(key, int) else key[0] for key in self._blocks]

    def _key(self, block_hash: int) -> _Key:
        """The key of a block that is computed now."""
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
