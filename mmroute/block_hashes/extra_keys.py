"""What else than token IDs goes into a block's hash: LoRA, images, cache salt.

Source: vLLM 0.33.0 ``v1/core/kv_cache_utils.py`` (`generate_block_hash_extra_keys`,
`to_event_extra_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from mmroute.errors import shown
from mmroute.request import Lora

__all__ = [
    "BlockKeys",
    "EventKeys",
    "ExtraKey",
    "HashedItem",
    "check_block_size",
    "check_token_ids",
    "event_extra_keys",
    "extra_keys",
]

ExtraKey: TypeAlias = (
    tuple[Literal["lora"], str, str]
    | tuple[Literal["mm"], str, int]
    | tuple[Literal["cache_salt"], str]
)
"""("lora", name, path), ("mm", identity, offset from the block's start) or ("cache_salt", salt)."""

BlockKeys: TypeAlias = tuple[ExtraKey, ...] | None
"""The extra keys of one block, in the engine's order; None if there are none."""

EventKeys: TypeAlias = tuple[str | tuple[str, int], ...] | None
"""The same as KV events carry them: no tags, and only an image's key is a tuple."""


@dataclass(frozen=True, slots=True)
class HashedItem:
    """One item of a request by what goes into block hashes.

    Attributes:
        identity: the string by which the engine tells items apart: the client's uuid, or a hash.
        offset: index of its first token in the expanded prompt.
        length: how many tokens, features or not.
    """

    identity: str
    offset: int
    length: int

    @property
    def stop(self) -> int:
        """Index after its last token."""
        return self.offset + self.length


def extra_keys(
    items: Iterable[HashedItem] = (),
    *,
    num_blocks: int,
    block_size: int,
    lora: Lora | None = None,
    cache_salt: str | None = None,
) -> tuple[BlockKeys, ...]:
    """The extra keys of the first blocks of a request.

    Args:
        items: its images, in any order.
        num_blocks: how many blocks.
        block_size: tokens in a block.
        lora: the adapter; its key is on every block.
        cache_salt: its key is on the first block; an empty one is none, as in vLLM.

    Raises:
        ValueError: a negative `num_blocks`, a `block_size` below 1, or an item with a negative
            offset or without a token.

    >>> extra_keys([HashedItem("cat", 3, 2)], num_blocks=3, block_size=4, cache_salt="s")
    ((('mm', 'cat', 3), ('cache_salt', 's')), (('mm', 'cat', -1),), None)
    """
    check_block_size(block_size)
    if num_blocks < 0:
        raise ValueError(f"num_blocks must not be negative, found {num_blocks}")
    every: BlockKeys = None if lora is None else (("lora", lora.name, lora.path),)
    keys = [every] * num_blocks
    _add_items(keys, sorted(items, key=lambda item: item.offset), block_size)
    if cache_salt and keys:
        keys[0] = (*(keys[0] or ()), ("cache_salt", cache_salt))
    return tuple(keys)


def _add_items(keys: list[BlockKeys], items: Sequence[HashedItem], block_size: int) -> None:
    reach = 0
    for item in items:
        if item.offset < 0 or item.length < 1:
            raise ValueError(f"an item starts at 0 or later and has a token, found {item}")
        # vLLM leaves a block at the first item that goes on beyond it, and leaves the request
        # behind its last item. It matters only for ranges that overlap by more than one token.
        first = max(item.offset, reach - 1) // block_size
        last = (min(item.stop, items[-1].stop) - 1) // block_size
        reach = max(reach, item.stop)
        for block in range(first, min(last + 1, len(keys))):
            key: ExtraKey = ("mm", item.identity, item.offset - block * block_size)
            before = keys[block]
            keys[block] = (key,) if before is None else (*before, key)


def event_extra_keys(keys: Iterable[BlockKeys]) -> list[EventKeys] | None:
    """Extra keys as KV events carry them, one entry for each block; None if there is no block.

    >>> event_extra_keys([(("lora", "sql", "/sql"), ("mm", "cat", -1)), None])
    [('sql', ('cat', -1)), None]
    """
    return [
        None
        if block is None
        else tuple((key[1], key[2]) if key[0] == "mm" else key[1] for key in block)
        for block in keys
    ] or None


def check_block_size(block_size: object) -> None:
    """Refuse what is not a number of tokens.

    Raises:
        ValueError: not an integer, or below 1.
    """
    if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
        raise ValueError(f"block_size must be an integer of at least 1, found {shown(block_size)}")


def check_token_ids(token_ids: object) -> None:
    """Check that token IDs are one row of uint32.

    Raises:
        ValueError: they are not; the message names what was found.
    """
    if not isinstance(token_ids, np.ndarray):
        found = type(token_ids).__name__
    elif token_ids.dtype != np.uint32 or token_ids.ndim != 1:
        found = f"{token_ids.dtype} of shape {token_ids.shape}"
    else:
        return
    raise ValueError(f"token_ids must be one row of uint32, as a numpy array; found {found}")
