"""One run of features between words: InternVL, Gemma 3n, audio."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.layout import Words
from mmroute.geometry.layouts.fill import filled
from mmroute.geometry.replacement import ModelContext, Replacement, TokenIds
from mmroute.requests.items import ImageSize

_LENGTH: Final = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Framed:
    """The same words around every item.

    Attributes:
        fill: the token of a feature position.
        before: what opens an item.
        after: what closes it.
    """

    fill: int
    before: Words = ()
    after: Words = ()

    def replacement(
        self, count: Count, _item: object, _number: int, _context: ModelContext
    ) -> Replacement:
        return _framed(_array(self.before), self.fill, count.total, _array(self.after))


@dataclass(frozen=True, slots=True)
class FramedBySize:
    """Kimi-K3: words that tell an image's own size.

    Attributes:
        fill: the token of a feature position.
        before: what opens an image, with ``{width}`` and ``{height}`` in pixels.
        after: what closes it.
    """

    fill: int
    before: str
    after: Words

    def replacement(
        self, count: Count, image: ImageSize, _: int, context: ModelContext
    ) -> Replacement:
        before = context.encode(self.before.format(width=image.width, height=image.height))
        return _framed(before, self.fill, count.total, _array(self.after))


def _framed(before: TokenIds, fill: int, count: int, after: TokenIds) -> Replacement:
    """Features between words.

    >>> _framed(_array((1,)), 10, 3, _array((2,))).token_ids.tolist()
    [1, 10, 10, 10, 2]
    """
    token_ids = np.concatenate((before, filled(fill, count), after))
    runs = (False, len(before)), (True, count), (False, len(after))
    return Replacement(token_ids, runs if all(map(_LENGTH, runs)) else tuple(filter(_LENGTH, runs)))


@lru_cache(maxsize=256)
def _array(words: Words) -> TokenIds:
    return np.array(words, dtype=np.uint32)
