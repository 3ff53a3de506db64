"""Kimi: images keep their size within limits of patches, and are padded up to whole tokens.

Sources: vLLM ``transformers_utils/processors/kimi_k25_vision_fused.py``
(`navit_resize_image`), ``model_executor/models/kimi_k25.py``, ``kimi_vl.py`` and
``models/kimi_k3/common/mm_preprocess.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.requests.items import ImageSize

_LARGEST: Final = ImageSize(3000, 3000)
_PLANNED: Final = ImageSize(1024, 1024)
_MOST_PER_SIDE: Final = 511


@dataclass(frozen=True, slots=True)
class Navit(MergedPatches):
    """Shrinks an image to the limits of patches, and pads it up to whole tokens."""

    max_patches: int
    max_patches_per_side: int
    fixed_tokens: int | None = None
    planned_by_sides: bool = False

    def largest_item(self, _: CachePlan) -> int:
        if not self.planned_by_sides:
            return self._tokens(_LARGEST)
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
        return Count(whole=self._tokens(image))

    def _tokens(self, image: ImageSize) -> int:
        return self.fixed_tokens or math.prod(self._grid(image))

    def _grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of padded tokens."""
        patch, longest = self.patch_size, self.max_patches_per_side * self.patch_size
        patches = max(1.0, image.width // patch) * max(1.0, image.height // patch)
        scale = min(
            1.0,
            math.sqrt(self.max_patches / patches),
            longest / image.width,
            longest / image.height,
        )
        width = min(max(1, int(image.width * scale)), longest)
        height = min(max(1, int(image.height * scale)), longest)
        factor = self.factor
        return math.ceil(height / factor), math.ceil(width / factor)


@dataclass(frozen=True, slots=True)
class ScaledPatches(MergedPatches):
    """Shrinks an image to a number of patches, and pads it up to whole tokens: Kimi-VL."""

    max_patches: int

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        return [_PLANNED]

    def count(self, image: ImageSize) -> Count:
        width, height = image.width, image.height
        patches = (width // self.patch_size) * (height // self.patch_size)
        if patches > self.max_patches:
            scale = math.sqrt(self.max_patches / patches)
            width, height = int(width * scale), int(height * scale)
        factor = self.factor
        columns, rows = -(-width // factor), -(-height // factor)
        if max(columns, rows) * self.merge_size > _MOST_PER_SIDE:
            raise image_refused(image, f"it has more than {_MOST_PER_SIDE} patches along a side")
        return Count(rows, columns)
