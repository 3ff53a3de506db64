"""Gemma 3: the blank lines around an image melt into the line breaks next to them.

The tokenizer has one token for each of one to four line breaks. A replacement begins and ends
with a blank line, so the engine merges neighbours as the tokenizer would have. Two images side
by side then share one token, and their ranges overlap by one.

Source: vLLM 0.33.0 ``model_executor/models/gemma3_mm.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.geometry import Replacement, TokenIds
from mmroute.placement.expansion import (
    Expansion,
    PlaceholderRange,
    expand_via_text,
    find_replacements,
    match_token,
    splice,
)
from mmroute.tokenizers import Tokenizer

__all__ = ["MergedBlankLines"]


@dataclass(frozen=True, slots=True)
class MergedBlankLines:
    """Placement by token ID, line breaks merged afterwards.

    Attributes:
        target_id: the chat placeholder ID.
        newlines: the IDs of one, two, three and four line breaks.
        tokenizer: for the engine's second attempt, through the decoded text.
    """

    target_id: int
    newlines: tuple[int, int, int, int]
    tokenizer: Tokenizer

    def expand(self, ids: TokenIds, replacements: Sequence[Replacement]) -> Expansion:
        """See `Placement.expand`."""
        matches = match_token(ids, self.target_id, len(replacements))
        if len(matches) == len(replacements):
            expanded = self._merge(splice(ids, matches, replacements).token_ids)
        else:
            targets = [[self.target_id]] * len(replacements)
            expanded = expand_via_text(self.tokenizer, ids, replacements, targets)
        return Expansion(expanded, self._find(expanded, replacements))

    def _merge(self, ids: TokenIds) -> TokenIds:
        one, two, three, four = self.newlines
        for first, second, merged in ((one, two, three), (two, one, three), (two, two, four)):
            ids = _merge_pairs(ids, first, second, merged)
        return ids

    def _find(
        self, ids: TokenIds, replacements: Sequence[Replacement]
    ) -> tuple[PlaceholderRange, ...]:
        """Find replacements in the prompt with its merged line breaks taken apart again."""
        one, two, three, four = self.newlines
        is_three, is_four = ids == three, ids == four
        repeats = 1 + (is_three | is_four)
        apart = np.repeat(ids, repeats)
        origin = np.repeat(np.arange(len(ids)), repeats)
        second = np.flatnonzero(np.diff(origin, prepend=-1) == 0)
        apart[second] = two
        first = second - 1
        apart[first] = np.where(is_three[origin[first]], one, two)
        return tuple(
            PlaceholderRange(p.item, int(origin[p.offset]), p.length, p.embed_runs)
            for p in find_replacements(apart, replacements)
        )


def _merge_pairs(ids: TokenIds, first: int, second: int, merged: int) -> TokenIds:
    """Replace each pair, left to right, a token being part of one pair at most."""
    starts = np.flatnonzero((ids[:-1] == first) & (ids[1:] == second))
    if not len(starts):
        return ids
    kept: list[int] = []
    for start in starts.tolist():
        if not kept or start > kept[-1] + 1:
            kept.append(start)
    result = ids.copy()
    result[kept] = merged
    return np.delete(result, np.array(kept) + 1)
