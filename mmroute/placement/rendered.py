"""The renderer has put the images in already (mistral-common); they only have to be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mmroute.geometry import TokenIds
from mmroute.placement.expansion import Expansion, Insertion, find_replacements
from mmroute.tokenizers import Tokenizer

__all__ = ["RenderedByTokenizer"]


@dataclass(frozen=True, slots=True)
class RenderedByTokenizer:
    """Placement for prompts that hold their replacements.

    Source: vLLM 0.33.0 ``model_executor/models/pixtral.py``: a prompt without them is refused.
    """

    keeps_prefix: ClassVar = False

    @classmethod
    def build(cls, _tokenizer: Tokenizer, _tokens: Mapping[str, int]) -> RenderedByTokenizer:
        return cls()

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        return Expansion(ids, find_replacements(ids, insertions))
