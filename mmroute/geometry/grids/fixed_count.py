"""One number of tokens for every item, whatever its size: Gemma 3n's images and audio.

Sources: vLLM ``model_executor/models/gemma3n_mm.py``; transformers
``models/gemma3n/processing_gemma3n.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmroute.geometry.grid import CachePlan, Count, OneByOne


@dataclass(frozen=True, slots=True)
class FixedCount(OneByOne[Any]):
    """A constant.

    Attributes:
        tokens: feature positions of an item.
    """

    tokens: int

    def max_embeds(self, _: CachePlan) -> int:
        return self.tokens

    def count(self, _: object) -> Count:
        return Count(whole=self.tokens)
