"""Inkling: the long side of an image is enlarged, and the image is covered with patches.

A row has one patch more than whole ones, whether a part is left or not. Sources: vLLM
``models/inkling/common/mm_preprocess.py`` (`_rescale_image`); transformers
``models/inkling/image_processing_inkling.py`` (`divide_to_patches`). Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

_PLANNED_SIDE: Final = 4


@dataclass(frozen=True, slots=True)
class UpscaledPatches(OneByOne[ImageSize]):
    """Enlarges an image, and counts its rows and columns of patches."""

    patch_size: int
    scale: float
    max_side: int
    planned_patch: int

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        side = _PLANNED_SIDE * self.planned_patch
        return [ImageSize(side, side)]

    def count(self, image: ImageSize) -> Count:
        longest = max(image.width, image.height)
        ratio = min(longest * self.scale, max(self.max_side, longest)) / longest
        # Halves are rounded up.
        width = max(1, math.floor(image.width * ratio + 0.5))
        height = max(1, math.floor(image.height * ratio + 0.5))
        return Count(-(-height // self.patch_size), width // self.patch_size + 1)
