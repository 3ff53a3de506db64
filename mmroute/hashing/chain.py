"""The chain of block hashes: in one pass of C where the extension is, or by Python.

The extension (`mmroute.hashing.native`) is optional: where no compiler was, the package was
installed without it. Python is the reference: an algorithm is left to the extension once it has
given the hashes of probe blocks as Python does.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from mmroute.geometry import TokenIds
from mmroute.hashing import pickle_encoding
from mmroute.hashing.algorithms import METHODS, Algorithm
from mmroute.hashing.extra_keys import ExtraKeys, HashedItem, extra_keys
from mmroute.request import Lora

try:
    from mmroute.hashing.native import _chain
except ImportError:
    _chain = None  # type: ignore[assignment]  # it is optional

__all__ = ["compiled", "hash_chain"]

_SHA256_SIZE: Final = 32
_PROBE_BLOCKS: Final = 24
_PROBE_BLOCK_SIZES: Final = (1, 2, 4, 16)


def hash_chain(
    algorithm: Algorithm, token_ids: TokenIds, keys: ExtraKeys, parent: bytes
) -> tuple[bytes, ...]:
    """The hashes of one or more consecutive full blocks, each over that of the block before it.

    Args:
        algorithm: how.
        token_ids: of the blocks, shape (keys.num_blocks * keys.block_size,).
        keys: the extra keys of the blocks.
        parent: the hash before the first of them.

    Raises:
        UnicodeEncodeError: an extra key is not valid Unicode.
    """
    found = _by_extension(algorithm, token_ids, keys, parent) if compiled(algorithm) else None
    return _by_python(algorithm, token_ids, keys, parent) if found is None else found


@cache
def compiled(algorithm: Algorithm) -> bool:
    """Whether the extension computes the hashes of an algorithm.

    It does not where it was not built, where the processor has no instructions for SHA-256 (there
    hashlib is faster), and where a probe shows a difference.
    """
    if _chain is None or (METHODS[algorithm].digest_size == _SHA256_SIZE and not _chain.has_sha256):
        return False
    return all(_agrees_at(algorithm, block_size) for block_size in _PROBE_BLOCK_SIZES)


def _agrees_at(algorithm: Algorithm, block_size: int) -> bool:
    ids = (1 << (np.arange(_PROBE_BLOCKS * block_size) % 31)).astype(np.uint32)  # of every width
    middle = _PROBE_BLOCKS * block_size // 2
    ids[middle:] = ids[middle]
    items = [HashedItem("cat", 3, 5), HashedItem("f" * 300, middle + 1, 9 * block_size)]
    for lora in (None, Lora("sql", "/adapters/sql")):
        keys = extra_keys(
            items, num_blocks=_PROBE_BLOCKS, block_size=block_size, lora=lora, cache_salt="salt"
        )
        probe = (
            algorithm,
            ids,
            keys,
            METHODS[algorithm].digest(pickle_encoding.encode_text("probe")),
        )
        if _by_extension(*probe) != _by_python(*probe):
            return False
    return True


def _by_extension(
    algorithm: Algorithm, token_ids: TokenIds, keys: ExtraKeys, parent: bytes
) -> tuple[bytes, ...] | None:
    """None where it declines: token IDs or extra keys that are too large for it."""
    method = METHODS[algorithm]
    layout = method.encoding.layout(keys, parent_size=len(parent))
    return _chain.hash_chain(
        token_ids,
        keys.block_size,
        parent,
        _chain.PICKLE if method.encoding is pickle_encoding else _chain.CBOR,
        _chain.SHA256 if method.digest_size == _SHA256_SIZE else _chain.XXH3_128,
        *layout,
    )


def _by_python(
    algorithm: Algorithm, token_ids: TokenIds, keys: ExtraKeys, parent: bytes
) -> tuple[bytes, ...]:
    method = METHODS[algorithm]
    digest = method.digest
    blocks = method.encoding.encode_blocks(token_ids, keys, parent_size=len(parent))
    return tuple([parent := digest(parent.join(block)) for block in blocks])
