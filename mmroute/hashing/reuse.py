"""Block hashes of earlier prompts: only the blocks behind a known beginning are hashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mmroute.fast_paths import ReuseStats
from mmroute.geometry import TokenIds
from mmroute.hashing.extra_keys import BlockKeys, ExtraKeys
from mmroute.hashing.vllm import BlockHashes, hash_blocks
from mmroute.prefix_cache import PrefixCache

__all__ = ["HashReuse"]

_WORTH_KEEPING: Final = 8192  # tokens
_BYTES_PER_HASH: Final = 96  # a Python object of its own
_BYTES_PER_KEY: Final = 320  # a tuple of tuples, and its place in a dictionary


class HashReuse:
    """A prefix cache of block hashes. Safe to share between threads.

    Args:
        max_bytes: of all that is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._cache: PrefixCache[BlockHashes] = PrefixCache(max_bytes)

    def hash_blocks(
        self,
        token_ids: TokenIds,
        extra_keys: Sequence[BlockKeys],
        *,
        algorithm: str,
        block_size: int,
        seed: str | None,
    ) -> BlockHashes:
        """What `mmroute.hashing.hash_blocks` gives; `previous` is found in the cache."""
        if len(token_ids) < _WORTH_KEEPING:
            return hash_blocks(
                token_ids, extra_keys, algorithm=algorithm, block_size=block_size, seed=seed
            )
        keys = ExtraKeys.of_blocks(extra_keys, block_size)
        whole = token_ids[: len(extra_keys) * block_size].view(np.uint8).data
        settings = hash(repr((algorithm, block_size, seed)))
        previous, prefix_hashes = self._cache.find(whole, salt=settings)
        hashes = hash_blocks(
            token_ids,
            keys,
            algorithm=algorithm,
            block_size=block_size,
            seed=seed,
            previous=previous,
        )
        if prefix_hashes:
            self._cache.count(hashes.reused * block_size * token_ids.itemsize)
            if hashes.reused < len(hashes):
                of_keys = _BYTES_PER_KEY * (len(keys.others) + len(keys.runs))
                size = len(whole) + _BYTES_PER_HASH * len(hashes) + of_keys
                self._cache.put(hashes, prefix_hashes, whole, size=size)
        return hashes

    def stats(self) -> ReuseStats:
        """What it has done, in bytes of token IDs."""
        return self._cache.stats()
