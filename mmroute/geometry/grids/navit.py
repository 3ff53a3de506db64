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

_ENGINES_LARGEST: Final = ImageSize(3000, 3000)
_PLANNED: Final = ImageSize(1024, 1024)
_MOST_PER_SIDE: Final = 511


@dataclass(frozen=True, slots=True)
class Navit(MergedPatches):
    """Shrinks an image to the limits of patches, and pads it up to whole tokens.

    Attributes:
        max_patches: the most patches of an image.
        max_patches_per_side: the most patches along one side.
        fixed_tokens: the number of tokens of every image, where they do not depend on its size.
        planned_by_sides: whether the engine plans its encoder cache with the best of all numbers of
            patches along both sides; otherwise with a square, which is not the largest image.
    """

    max_patches: int
    max_patches_per_side: int
    fixed_tokens: int | None = None
    planned_by_sides: bool = False

    def max_embeds(self, _: CachePlan) -> int:
        if not self.planned_by_sides:
            return self._tokens(_ENGINES_LARGEST)
        patch, most = self.patch_size, self.max_patches_per_side
        sides = [min((patches + 1) * patch - 1, most * patch) for patches in range(most + 1)]
        return max(
            self._tokens(ImageSize(width, height))
            for index, width in enumerate(sides)
            for height in sides[index:]
        )

    def patches(self, image: ImageSize) -> tuple[int, int, int]:
        """Frames, rows and columns of patches."""
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
    """Shrinks an image to a number of patches, and pads it up to whole tokens: Kimi-VL.

    Attributes:
        max_patches: the most whole patches of an image that is not scaled.
    """

    max_patches: int

    def max_embeds(self, _: CachePlan) -> int:
        return self.count(_PLANNED).total

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
