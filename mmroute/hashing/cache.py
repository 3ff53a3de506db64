"""A cache of block hashes: only blocks behind a prefix that is in the cache are hashed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mmroute.hashing.extra_keys import ExtraKeys
from mmroute.hashing.vllm import BlockHashes
from mmroute.reuse.prefix_cache import PrefixCache
from mmroute.token_ids import TokenIds

_MIN_TOKENS: Final = 8192
_BYTES_PER_HASH: Final = 96  # a Python object of its own
_BYTES_PER_KEY: Final = 320  # a tuple of tuples, and its place in a dictionary


class HashCache(PrefixCache[BlockHashes]):
    """A prefix cache of block hashes. Safe to share between threads.

    Its statistics count bytes of token IDs.
    """

    def hash_blocks(
        self,
        token_ids: TokenIds,
        extra_keys: Sequence[Any],
        hasher: Callable[..., BlockHashes],
        settings: Mapping[str, Any],
    ) -> BlockHashes:
        """Call `hasher` with the hashes of the longest known prefix as its `previous`."""
        if len(token_ids) < _MIN_TOKENS:
            return hasher(token_ids, extra_keys, **settings)
        block_size = settings["block_size"]
        prompt = token_ids[: len(extra_keys) * block_size].view(np.uint8).data
        previous, prefix_hashes = self.find(prompt, salt=hash((hasher, repr(settings))))
        hashes = hasher(token_ids, extra_keys, **settings, previous=previous)
        if prefix_hashes:
            self.count(hashes.reused * block_size * token_ids.itemsize)
            if hashes.reused < len(hashes):
                key_bytes = _BYTES_PER_KEY * _num_kept(extra_keys)
                size = len(prompt) + _BYTES_PER_HASH * len(hashes) + key_bytes
                self.put(hashes, prefix_hashes, prompt, size=size)
        return hashes


def _num_kept(keys: Sequence[Any]) -> int:
    return len(keys.others) + len(keys.runs) if isinstance(keys, ExtraKeys) else len(keys)
