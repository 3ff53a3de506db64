"""Pixtral and Mistral 3: an image is scaled into a square, and covered with patches.

The Hugging Face form rounds scaled sides down, Mistral's own rounds them half to even and
keeps at least one pixel. Sources: vLLM ``model_executor/models/pixtral.py`` and
``mistral3.py``; mistral-common ``tokens/tokenizers/image.py``. Checked with all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class FitSquare(OneByOne[ImageSize]):
    """Scales an image into a square, and counts its rows and columns of patches."""

    max_side: int
    patch_size: int
    merge_size: int = 1
    rounding: Literal["down", "half_even"] = "down"

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        return [ImageSize(self.max_side, self.max_side)]

    def count(self, image: ImageSize) -> Count:
        width, height = image.width, image.height
        ratio = max(width / self.max_side, height / self.max_side)
        if ratio > 1 and self.rounding == "half_even":
            width, height = max(round(width / ratio), 1), max(round(height / ratio), 1)
        elif ratio > 1:
            width, height = math.floor(width / ratio), math.floor(height / ratio)
            if width == 0 or height == 0:
                why = f"scaled to {self.max_side} pixels, the short side has no pixel left"
                raise image_refused(image, why)
        side = self.patch_size * self.merge_size
        return Count((height - 1) // side + 1, (width - 1) // side + 1)
