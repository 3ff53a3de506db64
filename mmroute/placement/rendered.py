"""The renderer has put the images in already (mistral-common); they only have to be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.geometry import Replacement
from mmroute.placement.expansion import Expansion, find_replacements

__all__ = ["RenderedByTokenizer"]


@dataclass(frozen=True, slots=True)
class RenderedByTokenizer:
    """Placement for prompts that hold their replacements.

    Source: vLLM 0.33.0 ``model_executor/models/pixtral.py``: a prompt without them is refused.
    """

    def expand(self, ids: Sequence[int], replacements: Sequence[Replacement]) -> Expansion:
        """See `Placement.expand`."""
        prompt = np.array(ids, dtype=np.uint32)
        return Expansion(prompt, find_replacements(prompt, replacements))
