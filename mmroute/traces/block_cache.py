"""A worker's prefix cache, block by block, as vLLM's pool evicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

__all__ = ["BlockCache"]


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
        self._hashes: OrderedDict[int, int] = (
            OrderedDict()
        )  # by block, the next to be evicted first
        self._blocks: dict[
            int, list[int]
        ] = {}  # by hash, the block that was there first comes first
        self._new_block = count()

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
        used: list[int] = []
        for block_hash in hashes[:lookup]:
            known = self._blocks.get(block_hash)
            if known is None:
                break
            used.append(known[0])
        hits = len(used)
        for block in used:
            self._hashes.move_to_end(block)  # nothing that is in use is evicted
        while len(self._hashes) - hits > room:
            self._evict()
        for block_hash in hashes[hits:]:
            block = next(self._new_block)
            self._blocks.setdefault(block_hash, []).append(block)
            used.append(block)
        for block, block_hash in zip(reversed(used), reversed(hashes), strict=True):
            self._hashes[block] = block_hash
            self._hashes.move_to_end(block)
        return hits

    def num_held(self, hashes: Sequence[int]) -> int:
        """How many first blocks of a prompt are cached."""
        known = self._blocks
        return next(
            (at for at, block_hash in enumerate(hashes) if block_hash not in known), len(hashes)
        )

    def held(self) -> list[int]:
        """The hashes of the cached blocks, the next to be evicted first."""
        return list(self._hashes.values())

    def _evict(self) -> None:
        block, block_hash = self._hashes.popitem(last=False)
        same = self._blocks[block_hash]
        same.remove(block)
        if not same:
            del self._blocks[block_hash]
