"""The bytes that vLLM's ``sha256_cbor`` and ``xxhash_cbor`` hash for a block.

They are ``cbor2.dumps((parent, token_ids, extra_keys), canonical=True)``: source, vLLM 0.33.0
``utils/hashing.py``, and RFC 8949 sections 3 and 4.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from typing import Final

import numpy as np

from mmroute.geometry import TokenIds
from mmroute.hashing.block_layout import BlockLayout
from mmroute.hashing.extra_keys import ExtraKey, ExtraKeys
from mmroute.hashing.packed_integers import AroundParent, pack

__all__ = ["encode_blocks", "encode_text", "layout"]

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)
_NULL: Final = b"\xf6"
_IN_FIRST_BYTE: Final = 24  # smaller integers take no byte but the first

_BYTE: Final = 0xFF
_TWO_BYTES: Final = 0xFFFF
_FIRST_BYTES: Final = np.array([0, 0x18, 0x19, 0x1A], np.uint64)
_WIDTHS: Final = np.array([1, 2, 3, 5], np.intp)
_UNUSED_BITS: Final = np.array([32, 24, 16, 0], np.uint64)  # of the value's four bytes


def encode_text(text: str) -> bytes:
    """The CBOR of a string; the parent of the first block is the hash of one.

    Raises:
        UnicodeEncodeError: not valid Unicode.
    """
    encoded = text.encode()
    return _head(_TEXT, len(encoded)) + encoded


def encode_blocks(
    token_ids: TokenIds, keys: ExtraKeys, *, parent_size: int
) -> Iterable[AroundParent]:
    """What is hashed for each of at least one full block, around the hash of its parent.

    Args:
        token_ids: shape (keys.num_blocks * keys.block_size,).
        keys: the extra keys of the blocks.
        parent_size: bytes of a hash.

    Raises:
        UnicodeEncodeError: an extra key is not valid Unicode.
    """
    kinds = (token_ids >= _IN_FIRST_BYTE).view(np.int8) + (token_ids > _BYTE).view(np.int8)
    kinds += (token_ids > _TWO_BYTES).view(np.int8)
    encoded = token_ids.byteswap().astype(np.uint64)
    encoded >>= _UNUSED_BITS.take(kinds)
    encoded <<= np.uint64(8)
    encoded |= _FIRST_BYTES.take(kinds)
    np.copyto(encoded, token_ids, where=token_ids < _IN_FIRST_BYTE)
    suffixes = pack(
        encoded,
        _WIDTHS.take(kinds),
        block_size=keys.block_size,
        opening=_head(_ARRAY, keys.block_size),
        closing=_NULL,
    )
    if any(keys):
        images: dict[str, bytes] = {}
        suffixes = [
            suffix[: -len(_NULL)] + _keys(block, images) if block else suffix
            for suffix, block in zip(suffixes, keys, strict=True)
        ]
    return zip(repeat(_before_parent(parent_size)), suffixes, strict=False)


def layout(keys: ExtraKeys, *, parent_size: int) -> BlockLayout:
    """The same for the compiled hasher, which writes token IDs and offsets itself.

    Args:
        keys: the extra keys of the blocks.
        parent_size: bytes of a hash.

    Raises:
        UnicodeEncodeError: an extra key is not valid Unicode.
    """
    alone = _head(_ARRAY, 1)
    images: dict[str, bytes] = {}
    return BlockLayout(
        _before_parent(parent_size),
        _head(_ARRAY, keys.block_size),
        b"",
        _NULL,
        tuple(
            [
                (run.first, run.stop, alone + _before_offset(run.identity), b"", run.offset)
                for run in keys.runs
            ]
        ),
        {block: _keys(extra, images) for block, extra in keys.others.items()},
    )


def _before_parent(parent_size: int) -> bytes:
    return _head(_ARRAY, 3) + _head(_BYTES, parent_size)


def _keys(keys: tuple[ExtraKey, ...], images: dict[str, bytes]) -> bytes:
    """The extra keys of one block; `images` keeps what was written of each up to its offset."""
    written = _head(_ARRAY, len(keys))
    for key in keys:
        if key[0] != "mm":
            written += _texts(*key)
            continue
        identity = key[1]
        if identity not in images:
            images[identity] = _before_offset(identity)
        written += images[identity] + _integer(key[2])
    return written


def _before_offset(identity: str) -> bytes:
    return _head(_ARRAY, 3) + encode_text("mm") + encode_text(identity)


def _texts(*texts: str) -> bytes:
    return _head(_ARRAY, len(texts)) + b"".join(map(encode_text, texts))


@lru_cache(maxsize=1 << 14)
def _integer(value: int) -> bytes:
    return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)


@lru_cache(maxsize=1 << 8)
def _head(major: int, argument: int) -> bytes:
    """The first bytes of an item: major type, and value or length in as few bytes as it takes."""
    kind = major << 5
    if argument < _IN_FIRST_BYTE:
        return (kind | argument).to_bytes(1, "big")
    for width, code in ((1, 0x18), (2, 0x19), (4, 0x1A)):
        if argument < 1 << 8 * width:
            return (kind | code).to_bytes(1, "big") + argument.to_bytes(width, "big")
    return (kind | 0x1B).to_bytes(1, "big") + argument.to_bytes(8, "big")
