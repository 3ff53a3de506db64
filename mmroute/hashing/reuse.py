"""Block hashes of earlier prompts: only the blocks behind a known beginning are hashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict, Unpack

import numpy as np

from mmroute.geometry import TokenIds
from mmroute.hashing.extra_keys import BlockKeys, ExtraKeys
from mmroute.hashing.vllm import BlockHashes, hash_blocks
from mmroute.reuse.prefix_cache import PrefixCache

_WORTH_KEEPING: Final = 8192  # tokens
_BYTES_PER_HASH: Final = 96  # a Python object of its own
_BYTES_PER_KEY: Final = 320  # a tuple of tuples, and its place in a dictionary


class _Settings(TypedDict):
    algorithm: str
    block_size: int
    seed: str | None


class HashReuse(PrefixCache[BlockHashes]):
    """A prefix cache of block hashes. Safe to share between threads. It counts bytes of token IDs.

    Args:
        max_bytes: of all that is kept.
    """

    def hash_blocks(
        self, token_ids: TokenIds, extra_keys: Sequence[BlockKeys], **settings: Unpack[_Settings]
    ) -> BlockHashes:
        """What `mmroute.hashing.hash_blocks` gives; `previous` is found in the cache."""
        if len(token_ids) < _WORTH_KEEPING:
            return hash_blocks(token_ids, extra_keys, **settings)
        block_size = settings["block_size"]
        keys = ExtraKeys.of_blocks(extra_keys, block_size)
        whole = token_ids[: len(extra_keys) * block_size].view(np.uint8).data
        previous, prefix_hashes = self.find(whole, salt=hash(repr(settings)))
        hashes = hash_blocks(token_ids, keys, **settings, previous=previous)
        if prefix_hashes:
            self.count(hashes.reused * block_size * token_ids.itemsize)
            if hashes.reused < len(hashes):
                of_keys = _BYTES_PER_KEY * (len(keys.others) + len(keys.runs))
                size = len(whole) + _BYTES_PER_HASH * len(hashes) + of_keys
                self.put(hashes, prefix_hashes, whole, size=size)
        return hashes
