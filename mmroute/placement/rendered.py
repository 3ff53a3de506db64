"""The renderer has put the images in already (mistral-common); they only have to be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmroute.geometry import Replacement, TokenIds
from mmroute.placement.expansion import Expansion, find_replacements

__all__ = ["RenderedByTokenizer"]


@dataclass(frozen=True, slots=True)
class RenderedByTokenizer:
    """Placement for prompts that hold their replacements.

    Source: vLLM 0.33.0 ``model_executor/models/pixtral.py``: a prompt without them is refused.
    """

    def expand(self, ids: TokenIds, replacements: Sequence[Replacement]) -> Expansion:
        """See `Placement.expand`."""
        return Expansion(ids, find_replacements(ids, replacements))
