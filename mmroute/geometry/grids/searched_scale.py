"""Isaac: the scale is searched for at which an image has as many patches as it may.

Source: vLLM ``transformers_utils/processors/isaac.py`` (`get_image_size_for_max_num_patches`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.requests.items import ImageSize

_PRECISION: Final = 1e-5
_LARGEST_SCALE: Final = 100.0


@dataclass(frozen=True, slots=True)
class SearchedScale(MergedPatches):
    """Finds an image's scale by halving, and counts rows and columns of tokens, rounded up."""

    min_patches: int
    max_patches: int
    largest: int
    planned_patches: int
    planned_merge: int

    def largest_item(self, _: CachePlan) -> int:
        return self.planned_patches // self.planned_merge**2

    def count(self, image: ImageSize) -> Count:
        if image.width * image.height > self.largest:
            raise image_refused(image, f"it has more than {self.largest} pixels")
        patches = self._patches(image, 1.0)
        low = high = 1.0
        grows = patches < self.min_patches
        if grows:
            high = _LARGEST_SCALE
        elif patches > self.max_patches:
            low = _PRECISION / 10
        while high - low >= _PRECISION:
            middle = (low + high) / 2
            found = self._patches(image, middle)
            if found < self.min_patches if grows else found <= self.max_patches:
                low = middle
            else:
                high = middle
        return Count(*self._grid(image, high if grows else low))

    def _patches(self, image: ImageSize, scale: float) -> int:
        rows, columns = self._grid(image, scale)
        return rows * columns * self.merge_size**2

    def _grid(self, image: ImageSize, scale: float) -> tuple[int, int]:
        """Rows and columns of tokens at a scale."""
        factor = self.factor
        rows = max(1, math.ceil(scale * image.height / factor))
        return rows, max(1, math.ceil(scale * image.width / factor))
