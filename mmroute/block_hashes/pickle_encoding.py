"""The bytes vLLM's ``sha256`` and ``xxhash`` hash for a block, without pickling each block.

They are ``pickle.dumps((parent, token_ids, extra_keys), protocol=5)``: source, vLLM 0.33.0
``utils/hashing.py`` and `hash_block_tokens` in ``v1/core/kv_cache_utils.py``. A pickle also tells
which strings are one object. The tags ("mm") are literals of the engine, hence one object each;
every other string has come to the engine's core through msgpack and is an object of its own,
except that CPython keeps one object for the empty string and for each character below U+0100.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from mmroute.block_hashes.cells import Half, pack
from mmroute.block_hashes.extra_keys import BlockKeys, ExtraKey
from mmroute.geometry import TokenIds

__all__ = ["encode_blocks", "encode_text"]

_PROTOCOL: Final = 5
_START: Final = b"\x80\x05\x95"  # PROTO 5, FRAME
_MEMOIZE: Final = b"\x94"
_MARK: Final = b"("
_TUPLE: Final = b"t"
_SHORT_TUPLES: Final = {1: b"\x85", 2: b"\x86", 3: b"\x87"}
_NONE: Final = b"N"
_END: Final = b"\x87\x94."  # TUPLE3, MEMOIZE, STOP

_BYTE: Final = 0xFF
_TWO_BYTES: Final = 0xFFFF
_BININT_LIMIT: Final = 1 << 31
_FRAME_LIMIT: Final = 1 << 16
_LAST_SINGLETON: Final = "\xff"


def encode_text(text: str) -> bytes:
    """The pickle of a string; the parent of the first block is the hash of one."""
    return pickle.dumps(text, protocol=_PROTOCOL)


def encode_blocks(
    token_ids: TokenIds, keys: Sequence[BlockKeys], *, block_size: int, parent_size: int
) -> Iterable[Half]:
    """What is hashed for each of at least one full block, around the hash of its parent.

    Args:
        token_ids: shape (len(keys) * block_size,).
        keys: the extra keys of each block.
        block_size: tokens in a block.
        parent_size: bytes of a hash.

    Raises:
        UnicodeEncodeError: an extra key is not valid Unicode.
    """
    if int(token_ids.max()) < _BININT_LIMIT:
        tails = _tails(token_ids, keys, block_size)
        sizes = list(map(len, tails))
        if max(sizes) + parent_size + 2 < _FRAME_LIMIT:
            return zip(map(_heads(parent_size).__getitem__, sizes), tails, strict=True)
    # Larger integers and more than one frame are rare enough to leave to pickle itself.
    rows = token_ids.reshape(-1, block_size)
    return [_pickled(row, block, parent_size) for row, block in zip(rows, keys, strict=True)]


class _Heads(dict[int, bytes]):
    """The pickles up to the parent, by the size of what follows it; made when first needed."""

    def __init__(self, parent_size: int) -> None:
        super().__init__()
        self._parent_size = parent_size

    def __missing__(self, tail_size: int) -> bytes:
        head = self[tail_size] = _head(tail_size, self._parent_size)
        return head


_heads: Final = lru_cache(maxsize=None)(_Heads)


def _head(tail_size: int, parent_size: int) -> bytes:
    """The pickle up to the parent, which is written as SHORT_BINBYTES."""
    frame = (2 + parent_size + tail_size).to_bytes(8, "little")
    return _START + frame + b"C" + parent_size.to_bytes(1, "little")


def _tails(token_ids: TokenIds, keys: Sequence[BlockKeys], block_size: int) -> list[bytes]:
    """The pickles after the parent."""
    # BININT1 "K", BININT2 "M" and BININT "J" in 2, 3 and 5 bytes: sums of bytes are faster here
    # than lookups.
    two_bytes = (token_ids > _BYTE).view(np.uint8)
    four_bytes = (token_ids > _TWO_BYTES).view(np.uint8)
    widths = two_bytes + four_bytes
    widths += four_bytes
    widths += 2
    opcodes = two_bytes + two_bytes
    opcodes -= four_bytes * np.uint8(3)
    opcodes += ord("K")
    cells = token_ids.astype(np.uint64)
    cells <<= np.uint64(8)
    cells += opcodes
    none = _NONE + _END
    after = _SHORT_TUPLES.get(block_size, _TUPLE) + _MEMOIZE
    keyed = any(keys)
    tails = pack(
        cells,
        widths,
        block_size=block_size,
        opening=_MEMOIZE if block_size in _SHORT_TUPLES else _MEMOIZE + _MARK,
        closing=after if keyed else after + none,
    )
    if not keyed:
        return tails
    around: dict[str, Half] = {}
    for block, extra in enumerate(keys):
        if not extra:
            tails[block] += none
            continue
        key = extra[0]
        if key[0] != "mm" or len(extra) > 1:
            tails[block] += _keys(extra)
            continue
        # Nearly all blocks of an image have its key alone, and it differs in the offset only.
        identity = key[1]
        if identity not in around:
            around[identity] = _around_offset(identity)
        tails[block] += _integer(key[2]).join(around[identity])
    return tails


def _keys(keys: tuple[ExtraKey, ...]) -> bytes:
    """The extra keys of one block and the end of its pickle."""
    written = b"" if len(keys) in _SHORT_TUPLES else _MARK
    memo: dict[str, int] = {}
    memoized = 2  # the parent and the token IDs
    for key in keys:
        values: tuple[str | int, ...] = key
        for position, value in enumerate(values):
            if isinstance(value, int):
                written += _integer(value)
                continue
            one_object = position == 0 or _is_singleton(value)
            if one_object and value in memo:
                written += _reference(memo[value])
                continue
            if one_object:
                memo[value] = memoized
            written += _text(value) + _MEMOIZE
            memoized += 1
        written += _SHORT_TUPLES[len(key)] + _MEMOIZE
        memoized += 1
    return written + _SHORT_TUPLES.get(len(keys), _TUPLE) + _MEMOIZE + _END


def _around_offset(identity: str) -> Half:
    """What `_keys` gives for one image and no other key, around its offset."""
    before = _text("mm") + _MEMOIZE + _text(identity) + _MEMOIZE
    return before, _SHORT_TUPLES[3] + _MEMOIZE + _SHORT_TUPLES[1] + _MEMOIZE + _END


@lru_cache(maxsize=1 << 14)
def _integer(value: int) -> bytes:
    if 0 <= value <= _BYTE:
        return b"K" + value.to_bytes(1, "little")
    if 0 <= value <= _TWO_BYTES:
        return b"M" + value.to_bytes(2, "little")
    return b"J" + value.to_bytes(4, "little", signed=True)


def _text(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) <= _BYTE:
        return b"\x8c" + len(encoded).to_bytes(1, "little") + encoded  # SHORT_BINUNICODE
    return b"X" + len(encoded).to_bytes(4, "little") + encoded  # BINUNICODE


def _reference(index: int) -> bytes:
    if index <= _BYTE:
        return b"h" + index.to_bytes(1, "little")  # BINGET
    return b"j" + index.to_bytes(4, "little")  # LONG_BINGET


def _is_singleton(value: str) -> bool:
    return not value or (len(value) == 1 and value <= _LAST_SINGLETON)


def _pickled(row: TokenIds, keys: BlockKeys, parent_size: int) -> Half:
    """The same by pickle itself, from objects as few and as many as the engine's are."""
    block = (bytes(parent_size), tuple(row.tolist()), _as_received(keys) if keys else None)
    encoded = pickle.dumps(block, protocol=_PROTOCOL)
    start = len(_head(0, parent_size))
    return encoded[:start], encoded[start + parent_size :]


def _as_received(keys: tuple[ExtraKey, ...]) -> tuple[tuple[str | int, ...], ...]:
    received = []
    for key in keys:
        values: tuple[str | int, ...] = key[1:]
        received.append((sys.intern(key[0]), *map(_received, values)))
    return tuple(received)


def _received(value: str | int) -> str | int:
    return value.encode().decode() if isinstance(value, str) else int(value)
