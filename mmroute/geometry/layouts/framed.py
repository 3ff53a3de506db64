"""One run of features between words: InternVL, Gemma 3n, audio."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.layout import Words
from mmroute.geometry.layouts.fill import filled
from mmroute.geometry.replacement import ModelContext, Replacement
from mmroute.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class Framed:
    """Writes one run of features, with words before and behind it.

    Attributes:
        fill: the token of a feature position.
        before: the tokens in front of the features.
        after: the tokens behind the features.
        size: the text in front of all, with an image's ``{width}`` and ``{height}`` in pixels, as
            in Kimi-K3.
    """

    fill: int
    before: Words = ()
    after: Words = ()
    size: str = ""

    def replacement(
        self, count: Count, item: Any, _number: int, context: ModelContext
    ) -> Replacement:
        before = _array(self.before)
        if self.size:
            size = context.encode(self.size.format(width=item.width, height=item.height))
            before = np.concatenate((size, before))
        return _framed(before, self.fill, count.total, _array(self.after))


@dataclass(frozen=True, slots=True)
class Enclosed:
    """Writes one run of features between words that take features as well, as in GLM-4V.

    Attributes:
        fill: the token of a feature position.
        before: the tokens in front of the features.
        after: the tokens behind the features.
    """

    fill: int
    before: Words = ()
    after: Words = ()

    def replacement(
        self, count: Count, _item: object, _number: int, _context: ModelContext
    ) -> Replacement:
        parts = (_array(self.before), filled(self.fill, count.total), _array(self.after))
        return Replacement(np.concatenate(parts))


@dataclass(frozen=True, slots=True)
class Stretched:
    """Repeats the last token of a target of several; all take features: Moondream 3.

    Attributes:
        text: the target.
    """

    text: Words

    def replacement(
        self, count: Count, _item: object, _number: int, _context: ModelContext
    ) -> Replacement:
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
