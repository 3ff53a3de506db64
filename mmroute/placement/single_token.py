"""One token is the placeholder; the k-th of them takes the k-th image, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmroute.geometry import Replacement, TokenIds
from mmroute.placement.expansion import (
    Expansion,
    expand_via_text,
    find_replacements,
    match_token,
    splice,
)
from mmroute.tokenizers import Tokenizer

__all__ = ["SingleToken"]


@dataclass(frozen=True, slots=True)
class SingleToken:
    """Placement by token ID. Placeholders beyond the number of images stay one token.

    Attributes:
        target_id: the chat placeholder ID.
        tokenizer: for the engine's second attempt, through the decoded text.
    """

    target_id: int
    tokenizer: Tokenizer

    def expand(self, ids: TokenIds, replacements: Sequence[Replacement]) -> Expansion:
        """See `Placement.expand`."""
        matches = match_token(ids, self.target_id, len(replacements))
        if len(matches) == len(replacements):
            return splice(ids, matches, replacements)
        targets = [[self.target_id]] * len(replacements)
        expanded = expand_via_text(self.tokenizer, ids, replacements, targets)
        return Expansion(expanded, find_replacements(expanded, replacements))
