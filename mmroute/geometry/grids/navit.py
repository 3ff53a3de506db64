"""Kimi: images keep their size within limits of patches, and are padded up to whole tokens.

Sources: vLLM ``transformers_utils/processors/kimi_k25_vision_fused.py``
(`navit_resize_image`), ``model_executor/models/kimi_k25.py``, ``kimi_vl.py`` and
``models/kimi_k3/common/mm_preprocess.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class Navit(MergedPatches):
    """Shrinks an image to the limits of patches, and pads it up to whole tokens."""

    max_patches: int
    max_patches_per_side: int
    fixed_tokens: int | None = None
    planned_by_sides: bool = False
    planned_side: int = 3000
    refuses_long_sides: bool = False

    def largest_item(self, _: CachePlan) -> int:
        if not self.planned_by_sides:
            return self._tokens(ImageSize(self.planned_side, self.planned_side))
        patch, most = self.patch_size, self.max_patches_per_side
        sides = [min((patches + 1) * patch - 1, most * patch) for patches in range(most + 1)]
        return max(
            self._tokens(ImageSize(width, height))
            for index, width in enumerate(sides)
            for height in sides[index:]
        )

    def patches(self, image: ImageSize) -> tuple[int, int, int]:
        rows, columns = self._grid(image)
        return 1, rows * self.merge_size, columns * self.merge_size

    def count(self, image: ImageSize) -> Count:
        return Count(whole=self.fixed_tokens) if self.fixed_tokens else Count(*self._grid(image))

    def _tokens(self, image: ImageSize) -> int:
        return self.count(image).total

    def _grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of padded tokens."""
        patch, longest = self.patch_size, self.max_patches_per_side * self.patch_size
        least = 0 if self.refuses_long_sides else 1
        patches = max(least, image.width // patch) * max(least, image.height // patch)
        scale = math.sqrt(self.max_patches / patches) if patches > self.max_patches else 1.0
        if not self.refuses_long_sides:
            scale = min(scale, longest / image.width, longest / image.height)
        width, height = (max(least, int(side * scale)) for side in (image.width, image.height))
        factor = self.factor
        if not self.refuses_long_sides:
            width, height = min(width, longest), min(height, longest)
        elif math.ceil(max(width, height) / factor) * self.merge_size > self.max_patches_per_side:
            why = f"it has more than {self.max_patches_per_side} patches along a side"
            raise image_refused(image, why)
        return math.ceil(height / factor), math.ceil(width / factor)
