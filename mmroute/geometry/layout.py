"""The protocol of layouts, which make the tokens of an item and count nothing."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

from mmroute.geometry.grid import Count
from mmroute.geometry.replacement import ModelContext, Replacement

Words: TypeAlias = tuple[int, ...]
"""Token IDs of words, which were encoded when the model was loaded."""


class Around(NamedTuple):
    """Words on both sides of feature positions."""

    before: Words  # the token IDs before the features
    after: Words  # the token IDs after the features


class Layout(Protocol):
    """Turns counts into replacements.

    A layout is a frozen dataclass. Its fields are the ``words`` of a family spec, and their types
    say how a word is read: `int` is one token, `Words` are token IDs, `Around` are words with
    ``{fill}`` in place of the features, and `str` is a template that is filled in and encoded for
    each item.
    """

    def replacement(
        self, count: Count, item: Any, number: int, context: ModelContext, /
    ) -> Replacement:
        """The replacement of one item."""
