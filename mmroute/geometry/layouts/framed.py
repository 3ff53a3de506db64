"""One run of features, alone or between words: most families, and audio."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.layout import Words
from mmroute.geometry.replacement import ModelContext, Replacement, check_count
from mmroute.token_ids import TokenIds

_RUN: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Fill:
    """Writes one token for each feature position, and nothing else."""

    fill: int

    def replacement(self, count: Count, *_: object) -> Replacement:
        rows, columns, tile, whole, _ = count
        total = rows * columns * tile + whole
        if total <= _RUN:
            return Replacement(_run(self.fill)[:total])
        return Replacement(filled(self.fill, total))


@dataclass(frozen=True, slots=True)
class NumberedFill:
    """Writes the k-th item in the place of a tag with its number: Phi-3."""

    fill: int
    target: str

    def replacement(
        self, count: Count, _: object, number: int, context: ModelContext
    ) -> Replacement:
        target = context.encode(self.target.format(n=number + 1))
        return Replacement(filled(self.fill, count.total), target=tuple(target.tolist()))


def filled(token_id: int, count: int) -> TokenIds:
    """A token so many times, shape (count,); not to be written to."""
    if count <= _RUN:
        return _run(token_id)[:count]
    check_count(count)
    return np.full(count, token_id, dtype=np.uint32)


@lru_cache(maxsize=64)
def _run(token_id: int) -> TokenIds:
    """A long array of the token, of which most images are a slice, so that none is copied."""
    run = np.full(_RUN, token_id, dtype=np.uint32)
    run.setflags(write=False)
    return run


@dataclass(frozen=True, slots=True)
class Framed:
    """Writes one run of features, with words before and behind it, which may take features too."""

    fill: int
    before: Words = ()
    after: Words = ()
    size: str = ""
    enclosed: bool = False

    def replacement(self, count: Count, item: Any, _: int, context: ModelContext) -> Replacement:
        before = _array(self.before)
        if self.size:
            size = context.encode(self.size.format(width=item.width, height=item.height))
            before = np.concatenate((size, before))
        framed = _framed(before, self.fill, count.total, _array(self.after))
        return Replacement(framed.token_ids) if self.enclosed else framed


@dataclass(frozen=True, slots=True)
class Stretched:
    """Repeats the last token of a target of several; all take features: Moondream 3."""

    text: Words

    def replacement(self, count: Count, *_: object) -> Replacement:
        repeated = filled(self.text[-1], count.total - 1)
        return Replacement(np.concatenate((_array(self.text[:1]), repeated)))


def _framed(before: TokenIds, fill: int, count: int, after: TokenIds) -> Replacement:
    """Features between words.

    >>> _framed(_array((1,)), 10, 3, _array((2,))).token_ids.tolist()
    [1, 10, 10, 10, 2]
    """
    token_ids = np.concatenate((before, filled(fill, count), after))
    runs = (False, len(before)), (True, count), (False, len(after))
    if before.size and count and after.size:
        return Replacement(token_ids, runs)
    if not (before.size or after.size):
        return Replacement(token_ids)
    return Replacement(token_ids, tuple(run for run in runs if run[1]))


@lru_cache(maxsize=256)
def _array(words: Words) -> TokenIds:
    return np.array(words, dtype=np.uint32)
