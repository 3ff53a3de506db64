"""The bytes that vLLM's ``sha256`` and ``xxhash`` hash for a block: its pickle, laid out at once.

They are ``pickle.dumps((parent, token_ids, extra_keys), protocol=5)``: source, vLLM 0.33.0
``utils/hashing.py`` and `hash_block_tokens` in ``v1/core/kv_cache_utils.py``. A pickle also tells
which strings are one object. The tags ("mm") are literals of the engine, hence one object each;
every other string has come to the engine's core through msgpack and is an object of its own,
except that CPython keeps one object for the empty string and for each character below U+0100.

Layout of a block with four IDs, inside the image "cat" that began three tokens before it:

    prefix    80 05               PROTO 5
              95 <8 bytes>        FRAME, with the number of bytes that follow
              43 10               SHORT_BINBYTES, of 16 bytes
    parent    <16 bytes>          the parent's hash, which is not known yet
    suffix    94                  MEMOIZE the parent, as object 0
              28                  MARK
              4b 05               BININT1   5
              4d 2c 01            BININT2   300
              4a 70 11 01 00      BININT    70000
              4b 07               BININT1   7
              74 94               TUPLE of what follows the mark, MEMOIZE as object 1
              8c 02 6d 6d 94      SHORT_BINUNICODE "mm", MEMOIZE as object 2
              8c 03 63 61 74 94   SHORT_BINUNICODE "cat", MEMOIZE as object 3
              4a fd ff ff ff      BININT    -3
              87 94               TUPLE3, MEMOIZE: the key of the image
              85 94               TUPLE1, MEMOIZE: the keys of the block
              87 94 2e            TUPLE3, MEMOIZE, STOP

A block without extra keys has NONE (4e) between the IDs and the last line. A second "mm" in one
block is a reference to object 2 (68 02, BINGET). The suffixes of all blocks of a request are laid
out at once, and only the parents are filled in one after the other. In the middle of an image the
blocks have one token ID and differ in the offset alone, so their suffixes are rows of one array.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain, repeat, zip_longest
from typing import Final

import numpy as np

from mmroute.geometry import TokenIds
from mmroute.hashing.block_layout import BlockLayout
from mmroute.hashing.extra_keys import BlockKeys, ExtraKey, ExtraKeys, Run
from mmroute.hashing.packed_integers import AroundParent, EncodedIntegers, Widths, pack

__all__ = ["encode_blocks", "encode_text", "layout"]

_PROTOCOL: Final = 5
_START: Final = b"\x80\x05\x95"  # PROTO 5, FRAME
_MEMOIZE: Final = b"\x94"
_MARK: Final = b"("
_TUPLE: Final = b"t"
_SHORT_TUPLES: Final = {1: b"\x85", 2: b"\x86", 3: b"\x87"}
_END: Final = b"\x87\x94."  # TUPLE3, MEMOIZE, STOP
_NO_KEYS: Final = b"N" + _END

_BYTE: Final = 0xFF
_TWO_BYTES: Final = 0xFFFF
_BININT_LIMIT: Final = 1 << 31
_FRAME_LIMIT: Final = 1 << 16
_TABLE_LIMIT: Final = 1 << 20
_SMALLEST_TABLE: Final = 16  # bits
_LAST_SINGLETON: Final = "\xff"


def encode_text(text: str) -> bytes:
    """The pickle of a string; the parent of the first block is the hash of one."""
    return pickle.dumps(text, protocol=_PROTOCOL)


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
    highest = int(token_ids.max())
    if highest < _BININT_LIMIT:
        segments = _suffixes(token_ids, keys, highest)
        longest = max(
            [max(map(len, suffixes[:1] if same else suffixes)) for suffixes, same in segments]
        )
        if longest + parent_size + 2 < _FRAME_LIMIT:
            return chain.from_iterable(_with_prefixes(*each, parent_size) for each in segments)
    # Larger integers and more than one frame are rare enough to leave to pickle itself.
    rows = token_ids.reshape(-1, keys.block_size)
    return [_pickled(row, block, parent_size) for row, block in zip(rows, keys, strict=True)]


def layout(keys: ExtraKeys, *, parent_size: int) -> BlockLayout:
    """The same for the compiled hasher, which writes token IDs, offsets and frame sizes itself.

    Args:
        keys: the extra keys of the blocks.
        parent_size: bytes of a hash.

    Raises:
        UnicodeEncodeError: an extra key is not valid Unicode.
    """
    return BlockLayout(
        _prefix(0, parent_size),
        *_around_ids(keys.block_size),
        _NO_KEYS,
        tuple(
            [(run.first, run.stop, *_around_offset(run.identity), run.offset) for run in keys.runs]
        ),
        {block: _keys(extra) for block, extra in keys.others.items()},
    )


def _with_prefixes(
    suffixes: list[bytes], one_size: bool, parent_size: int
) -> Iterable[AroundParent]:
    prefixes = _prefixes(parent_size)
    if one_size:
        return zip(repeat(prefixes[len(suffixes[0])]), suffixes, strict=False)
    return zip(map(prefixes.__getitem__, map(len, suffixes)), suffixes, strict=True)


class _Prefixes(dict[int, bytes]):
    """The pickles up to the parent, by the size of the suffix; made when first needed."""

    def __init__(self, parent_size: int) -> None:
        super().__init__()
        self._parent_size = parent_size

    def __missing__(self, suffix_size: int) -> bytes:
        prefix = self[suffix_size] = _prefix(suffix_size, self._parent_size)
        return prefix


_prefixes: Final = lru_cache(maxsize=None)(_Prefixes)


def _prefix(suffix_size: int, parent_size: int) -> bytes:
    """The pickle up to the parent, which is written as SHORT_BINBYTES."""
    frame = (2 + parent_size + suffix_size).to_bytes(8, "little")
    return _START + frame + b"C" + parent_size.to_bytes(1, "little")


def _suffixes(token_ids: TokenIds, keys: ExtraKeys, highest: int) -> list[tuple[list[bytes], bool]]:
    """The suffixes of all blocks, in segments; of each segment whether all have one length."""
    size = keys.block_size
    uniform = [r for r in keys.runs if _is_uniform(token_ids[r.first * size : r.stop * size])]
    ends = [0, *(run.stop * size for run in uniform)]
    starts = [*(run.first * size for run in uniform), len(token_ids)]
    mixed = [token_ids[end:start] for end, start in zip(ends, starts, strict=True)]
    suffixes = _without_keys(np.concatenate(mixed), size, highest)
    for block, extra in keys.others.items():
        at = block - _blocks_before(block, uniform)
        suffixes[at] = suffixes[at][: -len(_NO_KEYS)] + _keys(extra)
    for run in keys.runs:
        if run not in uniform:
            first = run.first - _blocks_before(run.first, uniform)
            for at, ending in enumerate(_rows(run, b"", size), first):
                suffixes[at] = suffixes[at][: -len(_NO_KEYS)] + ending
    segments = []
    at = 0
    for ids, run in zip_longest(mixed, uniform):
        until = at + len(ids) // size
        if len(ids):
            segments.append((suffixes[at:until], False))
        at = until
        if run is not None:
            token_id = int(token_ids[run.first * size])
            segments.append((_uniform_suffixes(run, token_id, size), True))
    return segments


def _blocks_before(block: int, runs: Sequence[Run]) -> int:
    return sum([run.stop - run.first for run in runs if run.first <= block])


def _is_uniform(token_ids: TokenIds) -> bool:
    return bool((token_ids == token_ids[0]).all())


def _uniform_suffixes(run: Run, token_id: int, block_size: int) -> list[bytes]:
    """The suffixes of blocks in the middle of an image, which differ only in its offset."""
    opening, after = _around_ids(block_size)
    return _rows(run, opening + _integer(token_id) * block_size + after, block_size)


def _rows(run: Run, before: bytes, block_size: int) -> list[bytes]:
    """For each block of a run: `before`, the image's key, and the end of the pickle."""
    opening, closing = _around_offset(run.identity)
    before += opening + b"J"  # a negative offset takes four bytes, whatever it is
    count, size = run.stop - run.first, len(before) + 4 + len(closing)
    rows = np.empty((count, size), np.uint8)
    rows[:] = np.frombuffer(before + bytes(4) + closing, np.uint8)
    offsets = np.arange(run.offset, run.offset - count * block_size, -block_size, dtype="<i4")
    rows[:, len(before) : len(before) + 4] = offsets.view(np.uint8).reshape(count, 4)
    found: list[bytes] = rows.view(f"S{size}").ravel().tolist()  # none ends in a zero
    return found


@lru_cache(maxsize=16)
def _around_ids(block_size: int) -> AroundParent:
    if block_size in _SHORT_TUPLES:
        return _MEMOIZE, _SHORT_TUPLES[block_size] + _MEMOIZE
    return _MEMOIZE + _MARK, _TUPLE + _MEMOIZE


def _without_keys(token_ids: TokenIds, block_size: int, highest: int) -> list[bytes]:
    """The suffixes of blocks without extra keys."""
    if not len(token_ids):
        return []
    if highest < _TABLE_LIMIT:
        all_encoded, all_widths = _table(max(highest.bit_length(), _SMALLEST_TABLE))
        encoded, widths = all_encoded.take(token_ids), all_widths.take(token_ids)
    else:
        encoded, widths = _integers(token_ids)
    opening, after = _around_ids(block_size)
    return pack(encoded, widths, block_size=block_size, opening=opening, closing=after + _NO_KEYS)


@cache
def _table(bits: int) -> tuple[EncodedIntegers, Widths]:
    """What `_integers` gives for all IDs of so many bits: looking up is faster than encoding."""
    return _integers(np.arange(1 << bits, dtype=np.uint32))


def _integers(token_ids: TokenIds) -> tuple[EncodedIntegers, Widths]:
    """Each ID as pickle writes it: BININT1 "K", BININT2 "M" and BININT "J" in 2, 3 and 5 bytes."""
    two_bytes = (token_ids > _BYTE).view(np.uint8)
    four_bytes = (token_ids > _TWO_BYTES).view(np.uint8)
    widths = 2 + two_bytes + 2 * four_bytes
    opcodes = ord("K") + 2 * two_bytes - 3 * four_bytes
    return (token_ids.astype(np.uint64) << np.uint64(8)) + opcodes, widths.astype(np.intp)


def _keys(keys: tuple[ExtraKey, ...]) -> bytes:
    """The extra keys of one block and the end of its pickle."""
    if len(keys) == 1 and keys[0][0] == "mm":
        return _integer(keys[0][2]).join(_around_offset(keys[0][1]))
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


@lru_cache(maxsize=256)
def _around_offset(identity: str) -> AroundParent:
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


def _pickled(row: TokenIds, keys: BlockKeys, parent_size: int) -> AroundParent:
    """The same by pickle itself: strings are one object where they are one in the engine."""
    block = (bytes(parent_size), tuple(row.tolist()), _as_received(keys) if keys else None)
    encoded = pickle.dumps(block, protocol=_PROTOCOL)
    start = len(_prefix(0, parent_size))
    return encoded[:start], encoded[start + parent_size :]


def _as_received(keys: tuple[ExtraKey, ...]) -> tuple[tuple[str | int, ...], ...]:
    received = []
    for key in keys:
        values: tuple[str | int, ...] = key[1:]
        received.append((sys.intern(key[0]), *map(_received, values)))
    return tuple(received)


def _received(value: str | int) -> str | int:
    return value.encode().decode() if isinstance(value, str) else int(value)
