"""Keys of mmroute's own for the blocks of a prompt, one form for all engines.

They cover what events tell of blocks: token IDs, and the extra keys in the form of vLLM's events.
No seed, algorithm or width of an engine's hashes changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from mmroute.hashing import chain

if TYPE_CHECKING:
    import numpy.typing as npt

_SEED: Final = 0
_IDS: Final = np.dtype("<u4")
_WIDEST: Final = 0xFFFFFFFF

encode: Final = msgspec.msgpack.Encoder().encode
"""The bytes of a block's extra keys in `content_keys`."""


def content_keys(
    token_ids: npt.NDArray[Any],
    block_size: int,
    *,
    extra: Mapping[int, bytes] | None = None,
    lora_name: str | None = None,
    parent: int | None = None,
) -> tuple[int, ...]:
    """The key of each full block: unsigned, 64 bits, over that of the block before it.

    Args:
        token_ids: the token IDs, shape (n,). Those of 32 bits have the same keys in every type.
        block_size: the number of tokens in a block.
        extra: by a block's number, what its hash covers beside its tokens, as `encode` writes it.
        lora_name: the adapter of the blocks in `extra`.
        parent: the key of the block before; None at the start of a prompt.

    >>> whole = content_keys(np.arange(4), 2)
    >>> content_keys(np.arange(2, 4), 2, parent=whole[0]) == whole[1:]
    True
    """
    ids = token_ids[: len(token_ids) // block_size * block_size]
    seed = xxh3_64_intdigest(lora_name.encode()) if lora_name else _SEED
    digests = {at: xxh3_64_intdigest(keys, seed) for at, keys in (extra or {}).items()}
    is_narrow = ids.itemsize == _IDS.itemsize or not np.any(ids > _WIDEST)
    if is_narrow and chain.keys_compiled():
        data = ids.astype(_IDS, copy=False).tobytes()
        return chain.content_keys(data, block_size, digests, parent)
    words = _words(ids, block_size, is_narrow=is_narrow)
    for at, digest in digests.items():
        (words[at],) = chain.hash_words(np.array([words[at], digest], "<u8").tobytes(), 16, _SEED)
    if parent is None:
        return tuple(chain.link_words(words, _SEED))
    return tuple(chain.link_words([parent, *words], _SEED)[1:])


def _words(token_ids: npt.NDArray[Any], block_size: int, *, is_narrow: bool) -> list[int]:
    """The hash of each block's token IDs. Those of more than 32 bits are hashed as 64."""
    narrow = chain.hash_words(token_ids.astype(_IDS).tobytes(), 4 * block_size, _SEED)
    if is_narrow:
        return narrow
    wide = chain.hash_words(token_ids.astype("<u8").tobytes(), 8 * block_size, _SEED)
    (places,) = np.any(token_ids.reshape(-1, block_size) > _WIDEST, axis=1).nonzero()
    for at in places.tolist():
        narrow[at] = wide[at]
    return narrow
