"""The bytes that vLLM's ``sha256`` and ``xxhash`` hash for a block: its pickle.

They are ``pickle.dumps((parent, token_ids, extra_keys), protocol=5)``: source, vLLM
``utils/hashing.py`` and `hash_block_tokens` in ``v1/core/kv_cache_utils.py``. A pickle also tells
which strings are one object. The tags ("mm") are literals of the engine, hence one object each;
every other string has come to the engine's core through msgpack and is an object of its own,
except that CPython keeps one object for the empty string and for each character below U+0100.

Layout of a block with four IDs, inside the image "cat" that began three tokens before it:

    head      80 05               PROTO 5
              95 <8 bytes>        FRAME, with the number of bytes that follow
              43 10               SHORT_BINBYTES, of 16 bytes
    parent    <16 bytes>          the parent's hash
    opening   94                  MEMOIZE the parent, as object 0
              28                  MARK
    IDs       4b 05               BININT1   5
              4d 2c 01            BININT2   300
              4a 70 11 01 00      BININT    70000
              4b 07               BININT1   7
    closing   74 94               TUPLE of what follows the mark, MEMOIZE as object 1
    ending    8c 02 6d 6d 94      SHORT_BINUNICODE "mm", MEMOIZE as object 2
              8c 03 63 61 74 94   SHORT_BINUNICODE "cat", MEMOIZE as object 3
              4a fd ff ff ff      BININT    -3
              87 94               TUPLE3, MEMOIZE: the key of the image
              85 94               TUPLE1, MEMOIZE: the keys of the block
              87 94 2e            TUPLE3, MEMOIZE, STOP

The ending of a block without extra keys is NONE (4e) and the last line. A second "mm" in one block
is a reference to object 2 (68 02, BINGET).
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from mmroute.hashing.extra_keys import BlockKeys, BlockLayout, ExtraKeys

_PROTOCOL: Final = 5
_HEAD: Final = 13  # bytes
_SHORT_TUPLES: Final = {1: b"\x85\x94", 2: b"\x86\x94", 3: b"\x87\x94"}
_OFFSET: Final = -1
_END: Final = b"\x87\x94."
_LARGEST: Final = (1 << 31) - 1
_PICKLED_OFFSET: Final = b"J\xff\xff\xff\xff"  # no UTF-8 has such bytes


def encode_text(text: str) -> bytes:
    """The pickle of a string; the parent of the first block is the hash of one."""
    return pickle.dumps(text, protocol=_PROTOCOL)


def encode_block(
    parent: bytes, token_ids: tuple[int, ...], keys: BlockKeys, ahead: tuple[int, ...] = ()
) -> bytes:
    """The bytes that are hashed for one block, its parent's hash among them."""
    received: tuple[object, ...] | None = keys
    # Most blocks with keys have one item's, whose identity is an object of its own already.
    if keys and (len(keys) > 1 or keys[0][0] != "mm" or keys[0][1] is keys[0][0]):
        received = tuple([
            (sys.intern(tag), *[v.encode().decode() if isinstance(v, str) else v for v in values])
            for tag, *values in keys
        ])  # fmt: skip
    if ahead:
        received = (received, *ahead)
    return pickle.dumps((parent, token_ids, received), protocol=_PROTOCOL)


def layout(keys: ExtraKeys, *, parent_size: int) -> BlockLayout:
    """The layout for the compiled hasher, which writes IDs, offsets and frame sizes itself."""
    short = _SHORT_TUPLES.get(keys.block_size)
    runs = [(run.first, run.stop, *_around_offset(run.identity), run.offset) for run in keys.runs]
    return BlockLayout(
        encode_block(bytes(parent_size), (0,), None)[:_HEAD],
        b"\x94" if short else b"\x94(",
        short or b"t\x94",
        _ending(None),
        tuple(runs),
        {block: _ending(extra) for block, extra in keys.others.items()},
    )


def endings(keys: ExtraKeys, ahead: Sequence[Sequence[int]]) -> dict[int, bytes] | None:
    """The endings of blocks with lookahead tokens, for the compiled hasher."""
    endings_by_block: dict[int, bytes] = {}
    for block, (extra, tokens) in enumerate(zip(keys, ahead, strict=True)):
        if max(tokens) > _LARGEST:
            return None
        if extra is not None and len(extra) == 1 and extra[0][0] == "mm":
            before, behind = _around_offset(extra[0][1])
            own = before + _integer(extra[0][2]) + behind[: -len(_END)]
        else:
            own = _ending(extra)[: -len(_END)]
        number = len(tokens) + 1
        mark, close = b"", _SHORT_TUPLES.get(number)
        if close is None:
            mark, close = b"(", b"t\x94"
        endings_by_block[block] = b"".join([mark, own, *map(_integer, tokens), close, _END])
    return endings_by_block


def _integer(value: int) -> bytes:
    """The pickle of an integer of 32 bits."""
    for code, width in ((b"K", 1), (b"M", 2)):
        if 0 <= value < 1 << 8 * width:
            return code + value.to_bytes(width, "little")
    return b"J" + value.to_bytes(4, "little", signed=True)


@lru_cache(maxsize=256)
def _ending(keys: BlockKeys) -> bytes:
    """The bytes after the token IDs of a block."""
    return encode_block(b"", (0,), keys)[_HEAD + len(b"\x94K\0\x85\x94") :]


@lru_cache(maxsize=256)
def _around_offset(identity: str) -> tuple[bytes, bytes]:
    """The ending of a block with an image's key alone, before and behind the offset."""
    before, _, behind = _ending((("mm", identity, _OFFSET),)).rpartition(_PICKLED_OFFSET)
    return before, behind
