"""Gemma 3: a fixed number of soft tokens for an image, and for each crop of it.

Crops are made with pan-and-scan, which a request can switch on. Sources: vLLM
``model_executor/models/gemma3_mm.py``, transformers ``models/gemma3/processing_gemma3.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class PanAndScan:
    """Counts the soft tokens of an image and of its crops."""

    tokens_per_image: int
    pan_and_scan: bool
    min_crop_size: int
    max_num_crops: int
    min_ratio: float

    def largest_item(self, _: CachePlan) -> int:
        crops = self.max_num_crops if self.pan_and_scan else 0
        return (crops + 1) * self.tokens_per_image

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterable[Count]:
        tokens, crops = self.tokens_per_image, map(self.num_crops, items)
        return (Count(min(1, number), number, tokens, tokens) for number in crops)

    def num_crops(self, image: ImageSize) -> int:
        """The number of crops of an image; 0 if it is not cut."""
        long, short = max(image.width, image.height), min(image.width, image.height)
        if not self.pan_and_scan or long / short < self.min_ratio:
            return 0
        wanted = min(math.floor(long / self.min_crop_size), math.floor(long / short + 0.5))
        crops = min(self.max_num_crops, max(2, wanted))
        return 0 if min(math.ceil(long / crops), short) < self.min_crop_size else crops
