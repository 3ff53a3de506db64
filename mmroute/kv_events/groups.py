"""How much of a prompt an engine reuses when its layers keep different blocks.

A model with several kinds of layers has a KV cache group for each. Full attention needs every block
of the prefix, a sliding window its last blocks, and a recurrent state the very last one. The engine
reuses the longest prefix for which every group has the blocks it needs, in full blocks of each.
Source: vLLM ``v1/core/kv_cache_coordinator.py`` (`find_longest_cache_hit`) and
``v1/core/single_type_kv_cache_manager.py`` (the same of each kind). It holds for engines that drop
no block for a drafter, as with lookahead hashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from mmroute.engines.events import BlockStored, StoredHashes

if TYPE_CHECKING:
    import numpy.typing as npt

GPU: Final = "GPU"
Held: TypeAlias = "npt.NDArray[np.bool_]"
"""Whether each rank holds each block of a prompt, shape (ranks, blocks)."""


class Group(NamedTuple):
    """Layers that share a KV cache layout, as the events of their blocks tell it."""

    kind: str | None  # `full_attention`, `sliding_window`, `mamba` or another `kv_cache_spec_kind`
    block_size: int  # tokens in one of its blocks
    sliding_window: int | None  # tokens that a layer sees, if they are limited
    # Tokens in a part of a block that has a hash of its own; 0 if no event named such one.
    part: int = 0

    def with_size(self, size: int) -> Group:
        """The group after an event with blocks of this size, which are full blocks or parts."""
        if size in (self.block_size, self.part):
            return self
        smaller, larger = sorted((size, self.block_size))
        return self._replace(block_size=larger, part=math.gcd(smaller, self.part))


def enter_group(
    groups: MutableMapping[int | None, Group], event: BlockStored | StoredHashes
) -> None:
    """Enter what an event tells of its group into the groups of a rank, by `group_idx`."""
    if event.medium == GPU and event.block_size > 0:
        known = groups.get(event.group_idx)
        if known is None:
            kind, window = event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window
            known = Group(kind, event.block_size, window)
        groups[event.group_idx] = known.with_size(event.block_size)


def hash_size(groups: Collection[Group]) -> int | None:
    """The number of tokens under one hash; None without a group.

    Groups of larger blocks have some of the hashes of the smallest. The number is wrong for an
    engine that runs with ``--prefix-match-unit``. Source: `resolve_kv_cache_block_sizes`.
    """
    return math.gcd(*(size for group in groups for size in (group.block_size, group.part))) or None


def reused_tokens(
    held: Sequence[tuple[Group, Held]], *, num_tokens: int, block_size: int
) -> npt.NDArray[np.int64] | None:
    """How many leading tokens of a prompt each rank reuses, shape (ranks,).

    >>> full, window = Group("full_attention", 4, None), Group("sliding_window", 4, 5)
    >>> has = np.array([[True, True, True, False]]), np.array([[False, True, False, True]])
    >>> reused_tokens([(full, has[0]), (window, has[1])], num_tokens=17, block_size=4).tolist()
    [8]
    """
    if not held:
        return None
    for group, _ in held:
        inside = group.kind == "mamba" and (group.part or group.block_size != block_size)
        if group.kind not in _REACHED or group.block_size % block_size or inside:
            return None
    step = math.lcm(*(group.block_size for group, _ in held))
    ranks, num_hashes = held[0][1].shape
    count = max(0, min(num_tokens - 1, num_hashes * block_size)) // step
    fits = np.ones((ranks, count + 1), bool)  # by the number of steps; none always fits
    for group, blocks in held:
        scale = group.block_size // block_size
        reached = _REACHED[group.kind](blocks[:, scale - 1 :: scale], group)
        every = step // group.block_size
        fits[:, 1:] &= reached[:, every - 1 :: every][:, :count]
    longest: npt.NDArray[np.int64] = step * (count - np.argmax(fits[:, ::-1], axis=1))
    return longest


def _all_before(held: Held, _group: Group) -> Held:
    return np.logical_and.accumulate(held, axis=1)


def _window_before(held: Held, group: Group) -> Held:
    """Whether the blocks of a window that ends with each block are held."""
    needed = max(1, -(-((group.sliding_window or 1) - 1) // group.block_size))
    at = np.arange(held.shape[1])
    last_miss = np.maximum.accumulate(np.where(held, -1, at), axis=1)
    reached: Held = at - last_miss >= np.minimum(needed, at + 1)
    return reached


def _itself(held: Held, _group: Group) -> Held:
    return held


_REACHED: Final[Mapping[str | None, Callable[[Held, Group], Held]]] = {
    "full_attention": _all_before,
    "mla_attention": _all_before,
    "sink_full_attention": _all_before,
    "sliding_window": _window_before,
    "sliding_window_mla": _window_before,
    "mamba": _itself,
}
"""By kind: after which blocks a group has what it needs of the prefix."""
