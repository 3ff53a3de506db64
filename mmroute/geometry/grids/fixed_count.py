"""One number of tokens for every item, whatever its size: Gemma 3n's images and audio, and others.

Moondream 3 makes the same number of features of a changing number of crops.

Sources: vLLM ``model_executor/models/gemma3n_mm.py``, ``aria.py``, ``bagel.py``, ``glm4v.py``,
``transformers_utils/processors/moondream3.py``;
transformers ``models/gemma3n/processing_gemma3n.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class FixedCount(OneByOne[Any]):
    """Counts the same number of tokens for every item: a constant, or that of a square image.

    Attributes:
        tokens: the number of feature positions of an item, or a table of several by the patches of
            an image, of which the engine takes the most. None: the square of the tokens along a
            side.
        image_size: the side of the resized image, in pixels.
        patch_size: the side of a patch, in pixels.
        merge_size: the number of patches along one side of a token.
        window: the side of a crop, in pixels, without the margin that it shares with others. 0:
            images are not cropped.
        margin: the pixels on both sides of an image that no window covers.
        max_crops: the most crops.
        around: the number of tokens around the features that take features as well (``enclosed``).
            The engine plans its encoder cache with them.
    """

    tokens: int | Mapping[str, int] | None = None
    image_size: int = 0
    patch_size: int = 1
    merge_size: int = 1
    window: int = 0
    margin: int = 0
    max_crops: int = 1
    around: int = 0

    def max_embeds(self, _: CachePlan) -> int:
        return self.count(None).whole + self.around

    def count(self, _: object) -> Count:
        tokens = self.tokens
        if tokens is None:
            tokens = (self.image_size // self.patch_size // self.merge_size) ** 2
        elif not isinstance(tokens, int):
            tokens = max(tokens.values(), default=0)
        return Count(whole=tokens)

    def crops(self, image: ImageSize, _: Count) -> tuple[int, int]:
        """Rows and columns of crops."""
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
