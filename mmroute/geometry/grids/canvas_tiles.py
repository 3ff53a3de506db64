"""Llama 4, Command A Vision and Molmo 2: the canvas of tiles that scales an image least.

Sources: vLLM ``model_executor/models/mllama4.py``, ``cohere2_vision.py`` and ``molmo2.py``;
transformers ``models/llama4/image_processing_llama4.py`` (`get_best_fit`),
``processing_llama4.py``, ``models/cohere2_vision/image_processing_cohere2_vision.py``
(`get_optimal_tiled_canvas`) and ``models/molmo2/image_processing_molmo2.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.grids.closest_tiles import grids
from mmroute.requests.items import ImageSize

_MARKS: Final = 4  # the beginning and the end of Molmo 2's crops, and of its whole image


@dataclass(frozen=True, slots=True)
class CanvasTiles(OneByOne[ImageSize]):
    """Counts the tiles of the best canvas, and the whole image as one tile more."""

    tile_size: int
    max_tiles: int
    tile_side: int | None = None
    patch_size: int = 1
    pixel_shuffle_ratio: float = 1.0
    single_precision: bool = False
    cropped: bool = True
    to_max_canvas: bool = False
    planned_width: int | None = None

    def __post_init__(self) -> None:
        if self.tile_size % self.patch_size:
            raise ValueError(f"tiles of a multiple of {self.patch_size} pixels")

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        """One column of tiles."""
        width = self.planned_width or self.tile_size
        return [ImageSize(width, self.max_tiles * self.tile_size)]

    def count(self, image: ImageSize) -> Count:
        rows, columns = (1, 1)
        if self.cropped:
            canvases = _canvases(self.tile_size, self.max_tiles, self.single_precision)
            best = _best(canvases, image.height, image.width, to_max=self.to_max_canvas)
            rows, columns = (side // self.tile_size for side in best)
        tile = self._tokens_per_tile()
        return Count(rows, columns, tile, tile) if rows * columns > 1 else Count(whole=tile)

    def _tokens_per_tile(self) -> int:
        if self.tile_side is not None:
            return self.tile_side**2
        return (self.tile_size // self.patch_size) ** 2 // round(1 / self.pixel_shuffle_ratio**2)


@dataclass(frozen=True, slots=True)
class OverlappingCrops(OneByOne[ImageSize]):
    """Counts the pooled patches of overlapping crops and of the whole image: Molmo 2."""

    crop_size: int
    patch_size: int
    max_crops: int
    margins: tuple[int, int]
    pooling: tuple[int, int]
    row_ends: bool = True
    whole_row_ends: bool | None = None

    def largest_item(self, _: CachePlan) -> int:
        tilings = grids(1, self.max_crops)
        return max(self._count(rows, columns).total for columns, rows in tilings) + _MARKS

    def count(self, image: ImageSize) -> Count:
        return self._count(*self._tiles(image))

    def crop_count(self, image: ImageSize) -> int:
        return math.prod(self._tiles(image)) + 1

    def patch_count(self, image: ImageSize) -> int:
        return self.crop_count(image) * (self.crop_size // self.patch_size) ** 2

    def pooled(self, image: ImageSize) -> int:
        return replace(self, row_ends=False, whole_row_ends=False).count(image).total

    def marked(self, image: ImageSize) -> int:
        return self.count(image).total + _MARKS

    def _tiles(self, image: ImageSize) -> tuple[int, int]:
        margin, window = self._margin_and_window()
        canvases = _canvases(window, self.max_crops, True)
        with np.errstate(divide="ignore"):  # an image may be no larger than the margins
            best = _best(canvases, image.height - margin, image.width - margin)
        rows, columns = (side // window for side in best)
        return rows, columns

    def _margin_and_window(self) -> tuple[int, int]:
        """Pixels of the margins, and of a crop without them."""
        margin = sum(self.margins) * self.patch_size
        return margin, self.crop_size // self.patch_size * self.patch_size - margin

    def _count(self, tile_rows: int, tile_columns: int) -> Count:
        margin, window = self._margin_and_window()
        rows = self._pooled(tile_rows * window + margin, self.pooling[0])
        columns = self._pooled(tile_columns * window + margin, self.pooling[1])
        whole_rows, whole_columns = (self._pooled(self.crop_size, size) for size in self.pooling)
        ends = self.row_ends if self.whole_row_ends is None else self.whole_row_ends
        return Count(rows, columns + self.row_ends, whole=whole_rows * (whole_columns + ends))

    def _pooled(self, pixels: int, size: int) -> int:
        return -(-(pixels // self.patch_size) // size)


def _best(
    canvases: npt.NDArray[np.float64], height: int, width: int, *, to_max: bool = False
) -> tuple[int, int]:
    """Height and width of the canvas that enlarges an image least, or else reduces it least.

    Of canvases with one scale it is the first, which has the fewest tiles.
    """
    scales = (canvases / np.array([height, width], dtype=canvases.dtype)).min(axis=1)
    larger = scales[scales >= 1]
    scale = larger.min() if len(larger) and not to_max else scales.max()
    best_height, best_width = canvases[np.argmax(scales == scale)].tolist()
    return int(best_height), int(best_width)


@lru_cache(maxsize=16)
def _canvases(tile_size: int, max_tiles: int, single_precision: bool) -> npt.NDArray[np.float64]:
    """Height and width of all canvases in pixels, smallest area first; shape (n, 2)."""
    sides = np.array(grids(1, max_tiles), dtype=np.float64) * tile_size
    return sides.astype(np.float32) if single_precision else sides[:, ::-1]
