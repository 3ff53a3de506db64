"""What differs between a prompt that was predicted and one that a worker announced."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_SECRET: Final = np.uint32(secrets.randbits(32) | 1)
_LONGEST: Final = 1 << 14  # tokens of a prompt that are compared
_FACTORS: Final = np.array([2 * secrets.randbits(47) + 1 for _ in range(8)], np.uint64)
OTHER_HASH: Final = (
    "the tokens and the extra keys of a prompt are equal, and its hash is not: hash algorithm, "
    "PYTHONHASHSEED, adapter path or version"
)


class Watched(NamedTuple):
    """A model on a worker. The engine's version may be empty."""

    worker: str
    model: str
    version: str


@dataclass(slots=True, eq=False)
class Sent:
    """A request that a worker took."""

    of: Watched
    keys: Sequence[int]
    block_size: int
    prints: npt.NDArray[np.uint16]
    hash: int | None
    items: Sequence[tuple[int, int]]  # the ranges of its items
    due: int  # the number of announced prompts after which it is not expected any more
    at: float


class Announced(NamedTuple):
    """The blocks of a prompt that nobody predicted."""

    parent: int | None
    keys: tuple[int, ...]
    block_size: int
    prints: npt.NDArray[np.uint16]
    at: float

    def and_then(self, keys: tuple[int, ...], prints: npt.NDArray[np.uint16]) -> Announced:
        """The same prompt with its next part, unless it is long already."""
        if len(self.prints) > _LONGEST:
            return self
        return self._replace(keys=self.keys + keys, prints=np.concatenate([self.prints, prints]))


def fingerprints(token_ids: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Sixteen bits of each token ID, which differ from process to process."""
    return (token_ids.astype(np.uint32) * _SECRET >> np.uint32(16)).astype(np.uint16)


def _parting(one: Sent, other: Announced) -> tuple[int, int] | None:
    """The blocks of a request and of another prompt at which they part; None if they do not."""
    if other.at < one.at:
        return None
    if other.parent is not None and other.parent not in one.keys:
        return 0, 0  # it begins like an earlier prompt, so they have parted before
    first = 0 if other.parent is None else one.keys.index(other.parent) + 1
    pairs = zip(one.keys[first:], other.keys, strict=False)
    common = next((at for at, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
    return None if common is None else (first + common, common)


def likeness(one: Sent, other: Announced) -> float:
    """The part of a request's text, from where it parts from another prompt, that this one has."""
    parting = _parting(one, other)
    if parting is None:
        return 0.0
    ours, theirs = parting[0] * one.block_size, parting[1] * other.block_size
    return float(np.isin(_runs(one.prints[ours:]), _runs(other.prints[theirs:])).mean())


def _runs(prints: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint64]:
    """The runs of a few tokens in a prompt, each as a number, without those that come again."""
    count = max(1, len(prints) - len(_FACTORS) + 1)
    windows = [prints[at : at + count].astype(np.uint64) for at in range(len(_FACTORS))]
    numbers = np.zeros(count, np.uint64)
    for factor, window in zip(_FACTORS, windows, strict=True):
        numbers[: len(window)] += factor * window
    return np.unique(numbers)


def difference(one: Sent, other: Announced) -> str:
    """Where a request parts from another prompt, in words."""
    size, parting = one.block_size, _parting(one, other)
    if parting is None or size != other.block_size:
        return f"blocks have {other.block_size} tokens, and were taken to have {size}"
    if other.parent is not None and other.parent not in one.keys:
        return "a token near the start of the prompt differs"
    block, start = parting[0], parting[0] * size
    ours = one.prints[start : start + size]
    different = np.flatnonzero(ours != other.prints[parting[1] * size :][:size])
    if not len(different):
        named = any(at < start + size and start < at + length for at, length in one.items)
        what = "the identity of an item" if named else "a salt or an adapter"
        return f"block {block} has the same tokens, and {what} differs"
    at = start + int(different[0])
    inside = [
        n for n, (offset, length) in enumerate(one.items, 1) if offset <= at < offset + length
    ]
    where = f", in item {inside[0]}" if inside else ""
    return f"token {at} of {len(one.prints)} differs{where}"
