"""Moondream 3: a changing number of crops, whose features are joined to the same number of tokens.

Source: vLLM ``transformers_utils/processors/moondream3.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class StitchedCrops(OneByOne[ImageSize]):
    """Counts the same number of tokens for every image, and knows the crops behind them."""

    tokens: int
    window: int
    margin: int
    max_crops: int

    def largest_item(self, _: CachePlan) -> int:
        return self.tokens

    def count(self, _: ImageSize) -> Count:
        return Count(whole=self.tokens)

    def crops(self, image: ImageSize, _: Count) -> tuple[int, int]:
        height, width = image.height - self.margin, image.width - self.margin
        if min(height, width) <= self.window:
            return 1, 1
        rows, columns = math.ceil(height / self.window), math.ceil(width / self.window)
        if rows * columns > self.max_crops:
            ratio = math.sqrt(self.max_crops / (rows * columns))
            return max(1, math.floor(rows * ratio)), max(1, math.floor(columns * ratio))
        rows = max(rows, math.floor(math.sqrt(self.max_crops * height / width)))
        columns = max(columns, math.floor(math.sqrt(self.max_crops * width / height)))
        if rows * columns > self.max_crops and columns > rows:
            return rows, self.max_crops // rows
        if rows * columns > self.max_crops:
            return self.max_crops // columns, columns
        return rows, columns
