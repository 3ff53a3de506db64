"""The chains of block hashes: in one pass of C where it computes as Python does, or by Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import accumulate, product
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import numpy as np
from xxhash import xxh3_64_intdigest

from mmroute.hashing import pickle_encoding
from mmroute.hashing.algorithms import METHODS, Algorithm
from mmroute.hashing.extra_keys import ExtraKeys, HashedItem, extra_keys
from mmroute.requests.request import Lora
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    import numpy.typing as npt

try:
    from mmroute.hashing.native import _chain
except ImportError:
    _chain = None  # type: ignore[assignment]  # it is optional

_Keys = TypeVar("_Keys")

_SHA256_SIZE: Final = 32
_PROBE_BLOCKS: Final = 24
_PROBE_BLOCK_SIZES: Final = (1, 2, 4, 16)
_PROBE_WORD_SIZES: Final = (4, 64, 300)  # XXH3 has another way for each of these
_PROBE_LOOKAHEADS: Final = (0, 1, 3, 30)
_WORD: Final = 8  # bytes


def hash_chain(
    algorithm: Algorithm, token_ids: TokenIds, keys: ExtraKeys, parent: bytes, lookahead: int = 0
) -> tuple[bytes, ...]:
    """The hashes of one or more consecutive full blocks, each over that of the block before it."""
    arguments = algorithm, token_ids, keys, parent, lookahead
    hashes = _by_extension(*arguments) if compiled(algorithm) else None
    return _by_python(*arguments) if hashes is None else hashes


def has_extension() -> bool:
    """Whether this package was installed with its compiled part."""
    return _chain is not None


@cache
def compiled(algorithm: Algorithm) -> bool:
    """Whether the extension computes an algorithm: it is built, and a probe was equal."""
    return _chain is not None and all(
        _agrees_at(algorithm, block_size) for block_size in _PROBE_BLOCK_SIZES
    )


def hash_pages(token_ids: TokenIds, page_size: int, parent: bytes) -> tuple[bytes, ...]:
    """The SHA-256 of each page: of the hash of the page before it, followed by its token IDs."""
    hash_them = _pages_by_extension if _pages_compiled() else _pages_by_python
    return hash_them(token_ids, page_size, parent)


@cache
def _pages_compiled() -> bool:
    probe = _probe_ids(3 * _PROBE_BLOCKS), 3, bytes(range(_SHA256_SIZE))
    return _chain is not None and _pages_by_extension(*probe) == _pages_by_python(*probe)


def _pages_by_extension(token_ids: TokenIds, page_size: int, parent: bytes) -> tuple[bytes, ...]:
    hashes = _chain.hash_chain(
        token_ids, page_size, parent, _chain.RAW, _chain.SHA256, b"", b"", b"", b"", (), {}
    )
    return hashes or ()


def _pages_by_python(token_ids: TokenIds, page_size: int, parent: bytes) -> tuple[bytes, ...]:
    data = token_ids.astype("<u4", copy=False).tobytes()
    step = page_size * token_ids.itemsize
    return tuple([
        parent := sha256(parent + data[start : start + step]).digest()
        for start in range(0, len(data), step)
    ])  # fmt: skip


def hash_words(data: bytes, size: int, seed: int) -> list[int]:
    """The 64-bit XXH3 of each run of `size` bytes."""
    if not _words_compiled():
        return _words_by_python(data, size, seed)
    words: list[int] = np.frombuffer(_chain.hash_words(data, size, seed), np.uint64).tolist()
    return words


def link_words(words: Iterable[int], seed: int) -> list[int]:
    """Chain hashes of 64 bits: the first as it is, then XXH3 of the last link and the next hash."""
    if not _words_compiled():
        return _links_by_python(words, seed)
    packed = np.fromiter(words, np.uint64).tobytes()
    linked: list[int] = np.frombuffer(_chain.link_words(packed, seed), np.uint64).tolist()
    return linked


def keys_compiled() -> bool:
    """Whether the extension computes the keys of `mmroute.hashing.content`."""
    return _words_compiled()


def content_keys(
    data: bytes, block_size: int, extra: dict[int, int], parent: int | None
) -> tuple[int, ...]:
    """The keys of blocks of token IDs of 32 bits; see `mmroute.hashing.content`."""
    return _chain.content_keys(data, 4 * block_size, extra, parent)


def unpack_ids(array: bytes) -> npt.NDArray[Any]:
    """The numbers of an array of msgpack, or of its pairs. Raises ValueError for anything else."""
    packed = _chain.unpack_ids(array) if _chain is not None else None
    if packed is not None:
        return np.frombuffer(packed, np.uint32)
    import msgspec  # which no request needs

    number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    with suppress(msgspec.ValidationError):
        return np.array(msgspec.msgpack.decode(array, type=list[number]), np.int64)
    pairs = msgspec.msgpack.decode(array, type=list[tuple[number, number]])
    return np.array(pairs, np.int64)


@cache
def _words_compiled() -> bool:
    return _chain is not None and all(map(_words_agree_at, _PROBE_WORD_SIZES))


def _words_agree_at(size: int) -> bool:
    data = bytes(range(_PROBE_BLOCKS)) * size
    words = _words_by_python(data, size, size)
    packed = _chain.hash_words(data, size, size)
    linked = np.frombuffer(_chain.link_words(packed, size), np.uint64)
    hashed = np.frombuffer(packed, np.uint64).tolist()
    return bool(hashed == words and linked.tolist() == _links_by_python(words, size))


def _words_by_python(data: bytes, size: int, seed: int) -> list[int]:
    starts = range(0, len(data), size)
    return [xxh3_64_intdigest(data[start : start + size], seed) for start in starts]


def _links_by_python(words: Iterable[int], seed: int) -> list[int]:
    def link(parent: int, word: int) -> int:
        both = parent.to_bytes(_WORD, "little") + word.to_bytes(_WORD, "little")
        return xxh3_64_intdigest(both, seed)

    return list(accumulate(words, link))


def _agrees_at(algorithm: Algorithm, block_size: int) -> bool:
    ids = _probe_ids(_PROBE_BLOCKS * block_size)
    middle = _PROBE_BLOCKS * block_size // 2
    ids[middle:] = ids[middle]
    items = [HashedItem("cat", 3, 5), HashedItem("f" * 300, middle + 1, 9 * block_size)]
    parent = METHODS[algorithm].digest(pickle_encoding.encode_text("probe"))
    for lora, lookahead in product((None, Lora("sql", "/adapters/sql")), _PROBE_LOOKAHEADS):
        keys = extra_keys(
            items,
            num_blocks=_PROBE_BLOCKS,
            block_size=block_size,
            lora=lora,
            cache_salt="salt",
            lookahead=lookahead,
        )
        ahead = _probe_ids(lookahead)
        probe = algorithm, np.concatenate([ids, ahead]), keys, parent, lookahead
        if _by_extension(*probe) != _by_python(*probe):
            return False
    return True


def _probe_ids(count: int) -> TokenIds:
    return (1 << (np.arange(count) % 31)).astype(np.uint32)  # of every width


def _by_extension(
    algorithm: Algorithm, token_ids: TokenIds, keys: ExtraKeys, parent: bytes, lookahead: int = 0
) -> tuple[bytes, ...] | None:
    """None where it declines: token IDs or extra keys that are too large for it."""
    method = METHODS[algorithm]
    layout = method.encoding.layout(keys, parent_size=len(parent))
    if lookahead:
        others = method.encoding.endings(keys, _ahead(token_ids, keys, lookahead))
        if others is None:
            return None
        layout = layout._replace(runs=(), others=others)
        token_ids = token_ids[:-lookahead]
    return _chain.hash_chain(
        token_ids,
        keys.block_size,
        parent,
        _chain.PICKLE if method.encoding is pickle_encoding else _chain.CBOR,
        _chain.SHA256 if method.digest_size == _SHA256_SIZE else _chain.XXH3_128,
        *layout,
    )


def _ahead(token_ids: TokenIds, keys: ExtraKeys, lookahead: int) -> list[list[int]]:
    """The lookahead tokens of each block."""
    windows = np.lib.stride_tricks.sliding_window_view(token_ids, lookahead)
    ahead: list[list[int]] = windows[keys.block_size :: keys.block_size].tolist()
    return ahead


def _by_python(
    algorithm: Algorithm, token_ids: TokenIds, keys: ExtraKeys, parent: bytes, lookahead: int = 0
) -> tuple[bytes, ...]:
    method = METHODS[algorithm]
    if lookahead:
        both = zip(keys, map(tuple, _ahead(token_ids, keys, lookahead)), strict=True)
        return link_blocks(
            token_ids,
            list(both),
            parent,
            block_size=keys.block_size,
            encode=lambda parent, ids, each: method.encoding.encode_block(parent, ids, *each),
            digest=method.digest,
        )
    return link_blocks(
        token_ids,
        keys,
        parent,
        block_size=keys.block_size,
        encode=method.encoding.encode_block,
        digest=method.digest,
    )


def link_blocks(
    token_ids: TokenIds,
    keys: Collection[_Keys],
    parent: bytes,
    *,
    block_size: int,
    encode: Callable[[bytes, tuple[int, ...], _Keys], bytes],
    digest: Callable[[bytes], bytes],
) -> tuple[bytes, ...]:
    """The hashes of consecutive full blocks, one by one."""
    ids = token_ids.tolist()
    starts = range(0, len(keys) * block_size, block_size)
    return tuple([
        parent := digest(encode(parent, tuple(ids[start : start + block_size]), extra))
        for start, extra in zip(starts, keys, strict=True)
    ])  # fmt: skip
