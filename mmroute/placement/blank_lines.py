"""Gemma 3: the blank lines around an image merge with the line breaks next to them.

The tokenizer has one token for each of one to four line breaks. A replacement begins and ends
with a blank line, so the engine merges neighbours as the tokenizer would have. Two images side
by side then share one token, and their ranges overlap by one.

Source: vLLM ``model_executor/models/gemma3_mm.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mmroute.errors import ModelError, Reason
from mmroute.placement.expansion import (
    Expansion,
    Insertion,
    PlaceholderRange,
    expand_via_text,
    find_replacements,
    match_targets,
    splice,
)
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class MergedBlankLines:
    """Placement by token ID, after which line breaks are merged."""

    tokenizer: Tokenizer  # the model's tokenizer, needed if token IDs show too few placeholders
    # The IDs of the tokens for one, two, three and four line breaks.
    newlines: tuple[int, int, int, int] = field(init=False)

    def __post_init__(self) -> None:
        newlines = [self.tokenizer.token_id("\n" * count) for count in range(1, 5)]
        if None in newlines:
            count = newlines.index(None) + 1
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{count} line breaks must be one token of the vocabulary, and are not. Check that "
                "tokenizer.json belongs to this model.",
            )
        object.__setattr__(self, "newlines", tuple(newlines))

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) == len(insertions):
            expanded = splice(ids, matches, insertions).token_ids
            one, two, three, four = self.newlines
            for merging in ((one, two, three), (two, one, three), (two, two, four)):
                expanded = _merge_pairs(expanded, *merging)
        else:
            expanded = expand_via_text(self.tokenizer, ids, insertions)
        return Expansion(expanded, self._find(expanded, insertions))

    def _find(self, ids: TokenIds, insertions: Sequence[Insertion]) -> tuple[PlaceholderRange, ...]:
        """Find the replacements after splitting merged line breaks again."""
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
            placed._replace(offset=int(origin[placed.offset]))
            for placed in find_replacements(apart, insertions)
        )


def _merge_pairs(ids: TokenIds, first: int, second: int, merged: int) -> TokenIds:
    """Replace each pair of tokens by one, left to right. A token is part of one pair at most."""
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
