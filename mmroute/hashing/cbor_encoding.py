"""The bytes that vLLM's ``sha256_cbor`` and ``xxhash_cbor`` hash for a block.

They are ``cbor2.dumps((parent, token_ids, extra_keys), canonical=True)``: source, vLLM
``utils/hashing.py``, and RFC 8949 sections 3 and 4.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from mmroute.hashing.extra_keys import BlockKeys, BlockLayout, ExtraKeys

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)
_IN_FIRST_BYTE: Final = 24  # smaller integers take no byte but the first
_ONE_BYTE: Final = 0xFF
_TWO_BYTES: Final = 0xFFFF


def encode_text(text: str) -> bytes:
    """The CBOR of a string; the parent of the first block is the hash of one."""
    encoded = text.encode()
    return _head(_TEXT, len(encoded)) + encoded


def encode_block(
    parent: bytes, token_ids: tuple[int, ...], keys: BlockKeys, ahead: tuple[int, ...] = ()
) -> bytes:
    """The bytes that are hashed for one block, its parent's hash among them."""
    before = _before_parent(len(parent)) + parent + _head(_ARRAY, len(token_ids))
    # Most IDs have more than one byte. They are written here, as a call for each would take longer.
    written = [
        (0x1A << 32 | i).to_bytes(5, "big")
        if i > _TWO_BYTES
        else (0x19 << 16 | i).to_bytes(3, "big")
        if i > _ONE_BYTE
        else _head(_UNSIGNED, i)
        for i in token_ids
    ]
    return before + b"".join(written) + _ending(keys, ahead)


def layout(keys: ExtraKeys, *, parent_size: int) -> BlockLayout:
    """The layout for the compiled hasher, which writes token IDs and offsets itself."""
    alone = _head(_ARRAY, 1)
    runs = [
        (run.first, run.stop, alone + _before_offset(run.identity), b"", run.offset)
        for run in keys.runs
    ]
    return BlockLayout(
        _before_parent(parent_size),
        _head(_ARRAY, keys.block_size),
        b"",
        _ending(None),
        tuple(runs),
        {block: _ending(extra) for block, extra in keys.others.items()},
    )


def _before_parent(parent_size: int) -> bytes:
    return _head(_ARRAY, 3) + _head(_BYTES, parent_size)


def endings(keys: ExtraKeys, ahead: Sequence[Sequence[int]]) -> dict[int, bytes]:
    """The endings of blocks with lookahead tokens, by number; see `pickle_encoding.endings`."""
    return dict(enumerate(map(_ending, keys, ahead)))


def _ending(keys: BlockKeys, ahead: Sequence[int] = ()) -> bytes:
    """The extra keys of one block, and its lookahead tokens."""
    if ahead:
        return _head(_ARRAY, 1 + len(ahead)) + _ending(keys) + b"".join(map(_integer, ahead))
    if keys is None:
        return b"\xf6"
    written = [
        _before_offset(key[1]) + _integer(key[2]) if key[0] == "mm" else _texts(key) for key in keys
    ]
    return _head(_ARRAY, len(keys)) + b"".join(written)


@lru_cache(maxsize=256)
def _before_offset(identity: str) -> bytes:
    return _head(_ARRAY, 3) + encode_text("mm") + encode_text(identity)


@lru_cache(maxsize=256)
def _texts(texts: tuple[str, ...]) -> bytes:
    return _head(_ARRAY, len(texts)) + b"".join(map(encode_text, texts))


def _integer(value: int) -> bytes:
    return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)


@lru_cache(maxsize=1 << 10)
def _head(major: int, argument: int) -> bytes:
    """The first bytes of an item: major type, and value or length in as few bytes as it takes."""
    kind = major << 5
    if argument < _IN_FIRST_BYTE:
        return (kind | argument).to_bytes(1, "big")
    for width, code in ((1, 0x18), (2, 0x19), (4, 0x1A)):
        if argument < 1 << 8 * width:
            return (kind | code).to_bytes(1, "big") + argument.to_bytes(width, "big")
    return (kind | 0x1B).to_bytes(1, "big") + argument.to_bytes(8, "big")
