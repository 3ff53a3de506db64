"""The general rule: an item takes the next placeholder of its target, typed or rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mmroute.geometry import TokenIds
from mmroute.placement.expansion import (
    Expansion,
    Insertion,
    expand_via_text,
    find_replacements,
    match_targets,
    splice,
)
from mmroute.tokenizers import Tokenizer

__all__ = ["Targets"]


@dataclass(frozen=True, slots=True)
class Targets:
    """Placement by targets of one or several tokens. Surplus placeholders stay as they are.

    Attributes:
        tokenizer: for the engine's second attempt, through the decoded text.
    """

    keeps_prefix: ClassVar = True
    tokenizer: Tokenizer

    @classmethod
    def build(cls, tokenizer: Tokenizer, _tokens: Mapping[str, int]) -> Targets:
        return cls(tokenizer)

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) == len(insertions):
            return splice(ids, matches, insertions)
        expanded = expand_via_text(self.tokenizer, ids, insertions)
        return Expansion(expanded, find_replacements(expanded, insertions))
