"""One number of tokens for every item, whatever its size: Gemma 3n's images and audio, and others.

Sources: vLLM ``model_executor/models/gemma3n_mm.py``, ``aria.py``, ``bagel.py``, ``glm4v.py``;
transformers ``models/gemma3n/processing_gemma3n.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmroute.geometry.grid import CachePlan, Count, OneByOne


@dataclass(frozen=True, slots=True)
class FixedCount(OneByOne[Any]):
    """Counts the same number of tokens for every item: a constant, or that of a square image."""

    tokens: int | Mapping[str, int] | None = None
    image_size: int = 0
    patch_size: int = 1
    merge_size: int = 1
    around: int = 0

    def largest_item(self, _: CachePlan) -> int:
        return self.count(None).whole + self.around

    def count(self, _: object) -> Count:
        tokens = self.tokens
        if tokens is None:
            tokens = (self.image_size // self.patch_size // self.merge_size) ** 2
        elif not isinstance(tokens, int):
            tokens = max(tokens.values(), default=0)
        return Count(whole=tokens)
