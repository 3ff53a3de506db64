"""DeepSeek-OCR and DeepSeek-VL2: one view of the whole image, and crops of it.

Sources: vLLM ``model_executor/models/deepseek_ocr.py``, ``deepseek_ocr2.py``, ``unlimited_ocr.py``
and ``transformers_utils/processors/deepseek_ocr.py``, whose constants the family specs repeat;
``model_executor/models/deepseek_vl2.py`` and ``transformers_utils/processors/deepseek_vl2.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.grids.anyres import best_resolution
from mmroute.geometry.grids.closest_tiles import closest_of, grids
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize

_MIN_CROPS: Final = 2
_MOST_CUT: Final = 2  # images of a request of DeepSeek-VL2


@dataclass(frozen=True, slots=True)
class ViewAndCrops:
    """Counts a view of the whole image, its crops and a separator together."""

    base_tokens: int
    crop_tokens: int
    crop_size: int
    max_crops: int
    planned_crops: tuple[int, int]
    row_ends: bool = True
    cropped: bool = True
    crops_alone: bool = False

    def largest_item(self, _: CachePlan) -> int:
        columns, rows = self.planned_crops
        return self._cut(ImageSize(self.crop_size * columns, self.crop_size * rows)).total

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterable[Count]:
        cut = self.cropped and (len(items) == 1 or not self.crops_alone)
        return map(self._cut, items) if cut else [self._view] * len(items)

    @property
    def _view(self) -> Count:
        """The count of an image that is not cut."""
        return Count(whole=self.base_tokens * (self.base_tokens + self.row_ends) + 1)

    def _cut(self, image: ImageSize) -> Count:
        if max(image.width, image.height) <= self.crop_size:
            return self._view
        columns, rows = closest_of(image, grids(_MIN_CROPS, self.max_crops), self.crop_size)
        across, down = columns * self.crop_tokens, rows * self.crop_tokens
        return Count(down, across + self.row_ends, whole=self._view.whole)

    def crops(self, _: ImageSize, count: Count) -> tuple[int, int]:
        side = self.crop_tokens
        return max(1, count.rows // side), max(1, (count.columns - self.row_ends) // side)


@dataclass(frozen=True, slots=True)
class CropsOfFew:
    """Cuts images by the best of several resolutions, if a request has few: DeepSeek-VL2."""

    resolutions: tuple[tuple[int, int], ...]
    patch_size: int
    downsample_ratio: int

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        return [ImageSize(width, height) for width, height in self.resolutions]

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterable[Count]:
        return [self._count(image, cut=len(items) <= _MOST_CUT) for image in items]

    def _count(self, image: ImageSize, *, cut: bool) -> Count:
        crop = self.resolutions[0][0]
        height, width = crop, crop
        if cut:
            turned = [(height, width) for width, height in self.resolutions]
            height, width = best_resolution(image, turned)
        side = self._side
        rows, columns = height // crop * side, width // crop * side
        return Count(rows, columns + 1, whole=side * (side + 1) + 1)

    @property
    def _side(self) -> int:
        """Feature positions along one side of a crop."""
        return -(-(self.resolutions[0][0] // self.patch_size) // self.downsample_ratio)

    def crops(self, _: ImageSize, count: Count) -> tuple[int, int]:
        return count.rows // self._side, (count.columns - 1) // self._side
