"""Extra keys: what a block's hash covers besides token IDs (LoRA, images, cache salt).

Source: vLLM ``v1/core/kv_cache_utils.py`` (`generate_block_hash_extra_keys`,
`to_event_extra_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np

from mmroute.errors import quoted
from mmroute.requests.request import Lora


class BlockLayout(NamedTuple):
    """The bytes that are hashed for each block, without its parent's hash and its token IDs."""

    head: bytes  # the bytes before the parent's hash
    opening: bytes  # the bytes between the parent's hash and the token IDs
    closing: bytes  # the bytes after the token IDs
    ending: bytes  # the last bytes of a block without extra keys
    # (first block, block after the last, bytes before the offset, bytes behind it, offset in the
    # first block) of blocks whose endings differ in the offset alone.
    runs: tuple[tuple[int, int, bytes, bytes, int], ...]
    # The last bytes of other blocks with extra keys, by the block's number.
    others: dict[int, bytes]


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
    """An item of a request, as block hashes cover it."""

    identity: str  # the string by which the engine tells items apart: the client's uuid, or a hash
    offset: int  # the index of its first token in the expanded prompt
    length: int  # the number of its tokens, features or not

    @property
    def stop(self) -> int:
        """Index after its last token."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive blocks whose only extra key is that of one item."""

    first: int  # the first of the blocks
    stop: int  # the block after the last
    identity: str
    offset: int  # the item's offset from the start of the first block


@dataclass(frozen=True, slots=True, eq=False)
class ExtraKeys(Sequence[BlockKeys]):
    """The extra keys of the first blocks of a request, one entry for each block."""

    block_size: int  # the number of tokens in a block
    num_blocks: int  # the number of blocks
    # The runs of blocks in which one item's key is the only one, in order.
    runs: tuple[Run, ...] = ()
    # The other blocks that have keys, by their numbers.
    others: Mapping[int, tuple[ExtraKey, ...]] = field(default_factory=dict)

    @classmethod
    def of_blocks(cls, keys: Sequence[BlockKeys], block_size: int) -> ExtraKeys:
        """The same keys, given as one entry for each block."""
        if isinstance(keys, cls) and keys.block_size == block_size:
            return keys
        others = {block: extra for block, extra in enumerate(keys) if extra}
        return cls(block_size, len(keys), (), others)

    def __len__(self) -> int:
        return self.num_blocks

    @overload
    def __getitem__(self, index: int) -> BlockKeys: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BlockKeys, ...]: ...
    def __getitem__(self, index: int | slice) -> BlockKeys | tuple[BlockKeys, ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[BlockKeys]:
        keys: list[BlockKeys] = [None] * self.num_blocks
        for block, extra in self.others.items():
            keys[block] = extra
        for run in self.runs:
            for block in range(run.first, run.stop):
                offset = run.offset - (block - run.first) * self.block_size
                keys[block] = (("mm", run.identity, offset),)
        return iter(keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # equal to sequences that have other hashes

    def __repr__(self) -> str:
        return repr(tuple(self))

    def behind(self, start: int) -> ExtraKeys:
        """The keys of the blocks from `start` on, which is block 0 of the result."""
        if not start:
            return self
        runs = []
        for run in self.runs:
            cut = max(0, start - run.first)
            if run.first + cut < run.stop:
                first, offset = run.first + cut - start, run.offset - cut * self.block_size
                runs.append(Run(first, run.stop - start, run.identity, offset))
        others = {block - start: extra for block, extra in self.others.items() if block >= start}
        return ExtraKeys(self.block_size, self.num_blocks - start, tuple(runs), others)

    def in_common(self, other: ExtraKeys) -> int:
        """The number of leading blocks that have the same keys in both; it may be too small."""
        count = min(self.num_blocks, other.num_blocks)
        for mine, theirs in zip_longest(self.runs, other.runs):
            if mine != theirs:
                both = [run for run in (mine, theirs) if run is not None]
                alike = len({(run.first, run.identity, run.offset) for run in both}) < len(both)
                count = min([count, *[run.stop if alike else run.first for run in both]])
                break
        if self.others == other.others:
            return count
        differ = (b for b, extra in self.others.items() if other.others.get(b) != extra)
        added = other.others.keys() - self.others.keys()
        return min(count, min(differ, default=count), min(added, default=count))


def extra_keys(
    items: Iterable[HashedItem] = (),
    *,
    num_blocks: int,
    block_size: int,
    lora: Lora | None = None,
    cache_salt: str | None = None,
    lookahead: int = 0,
) -> ExtraKeys:
    """The extra keys of the first blocks of a request.

    >>> extra_keys([HashedItem("cat", 3, 2)], num_blocks=3, block_size=4, cache_salt="s")
    ((('mm', 'cat', 3), ('cache_salt', 's')), (('mm', 'cat', -1),), None)
    """
    check_block_size(block_size, lookahead)
    if num_blocks < 0:
        raise ValueError(f"num_blocks must not be negative, found {num_blocks}")
    shared: dict[int, tuple[ExtraKey, ...]] = {}
    if lora is not None:
        shared = dict.fromkeys(range(num_blocks), (("lora", lora.name, lora.path),))
    runs: list[Run] = []
    ordered = sorted(items, key=lambda item: item.offset)
    spans = list(_spans(ordered, num_blocks, block_size, lookahead))
    reach = 0
    firsts_of_next = [first for _, first, _ in spans[1:]] + [num_blocks]
    for (item, first, stop), first_of_next in zip(spans, firsts_of_next, strict=False):
        start, end = max(first, reach, 1 if cache_salt else 0), min(stop, first_of_next)
        if start < end and lora is None:
            runs.append(Run(start, end, item.identity, item.offset - start * block_size))
        else:
            start = end = stop
        for block in (*range(first, start), *range(end, stop)):
            key: ExtraKey = ("mm", item.identity, item.offset - block * block_size)
            shared[block] = (*shared.get(block, ()), key)
        reach = max(reach, stop)
    if cache_salt and num_blocks:
        shared[0] = (*shared.get(0, ()), ("cache_salt", cache_salt))
    return ExtraKeys(block_size, num_blocks, tuple(runs), shared)


def _spans(
    items: Sequence[HashedItem], num_blocks: int, block_size: int, lookahead: int
) -> Iterator[tuple[HashedItem, int, int]]:
    """Each item with the first block that has its key, and the block after the last."""
    reach = 0
    for item in items:
        if item.offset < 0 or item.length < 1:
            raise ValueError(f"an item starts at 0 or later and has a token, found {item}")
        # vLLM leaves a block at the first item that goes on beyond it, and leaves the request
        # behind its last item. It matters only for ranges that overlap by more than one token.
        first = max(0, max(item.offset, reach - 1) - lookahead) // block_size
        last = (min(item.stop, items[-1].stop) - 1) // block_size
        reach = max(reach, item.stop)
        if first < min(last + 1, num_blocks):
            yield item, first, min(last + 1, num_blocks)


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


def check_block_size(block_size: object, lookahead: object = 0) -> None:
    """Check a block size, and a number of lookahead tokens."""
    if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
        raise ValueError(f"block_size must be an integer of at least 1, found {quoted(block_size)}")

    if isinstance(lookahead, bool) or not isinstance(lookahead, int) or lookahead < 0:
        raise ValueError(f"lookahead must be an integer of at least 0, found {quoted(lookahead)}")


def check_token_ids(token_ids: object) -> None:
    """Check that token IDs are one row of uint32."""
    if not isinstance(token_ids, np.ndarray):
        kind = type(token_ids).__name__
    elif token_ids.dtype != np.uint32 or token_ids.ndim != 1:
        kind = f"{token_ids.dtype} of shape {token_ids.shape}"
    else:
        return
    raise ValueError(f"token_ids must be one row of uint32, as a numpy array; found {kind}")
