"""What a layout is: it writes the tokens of an item, and counts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from mmroute.geometry.grid import Count
    from mmroute.geometry.replacement import ModelContext, Replacement


Words: TypeAlias = tuple[int, ...]
"""Token IDs of words, which were encoded when the model was loaded."""


class Around(NamedTuple):
    """Words on both sides of feature positions.

    Attributes:
        before: token IDs before them.
        after: token IDs behind them.
    """

    before: Words
    after: Words


class Layout(Protocol):
    """Counts to replacements.

    A layout is a frozen dataclass. Its fields are what a family spec gives in ``words``, by their
    types: `int` is one token, `Words` token IDs, `Around` words with ``{fill}`` where the features
    stand, and `str` a template that is filled in and encoded for each item.
    """

    def replacement(
        self, count: Count, item: Any, number: int, context: ModelContext, /
    ) -> Replacement:
        """The replacement of one item.

        Args:
            count: its feature positions.
            item: itself, for layouts that write its size.
            number: its place among the request's items of its modality, from 0.
            context: the tokenizer, among others.

        Raises:
            InexactError: `item_too_large`, `special_token_split`, `item_refused`.
        """
