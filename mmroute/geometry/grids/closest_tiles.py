"""InternVL and H2OVL: the grid of square tiles whose aspect ratio is closest to the image's.

Sources: vLLM ``transformers_utils/processors/internvl.py``, ``nemotron_vl.py`` and ``h2ovl.py``,
``model_executor/models/h2ovl.py``; transformers
``models/got_ocr2/image_processing_got_ocr2.py`` (`get_optimal_tiled_canvas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize

_ENOUGH: Final = 0.6


@dataclass(frozen=True, slots=True)
class ClosestTiles(OneByOne[ImageSize]):
    """Counts the tiles of the grid of the closest aspect ratio, and the whole image as one more."""

    tile_size: int
    min_tiles: int
    max_tiles: int
    tokens_per_tile: int | None = None
    patch_size: int = 1
    downsample_ratio: float = 1.0
    cropped: bool = True
    planned_cropped: bool = True
    thumbnail: bool = True
    weighs_area: bool = False

    def largest_item(self, _: CachePlan) -> list[ImageSize] | int:
        """One of all grids, also of those with one tile more than the most."""
        if not self.planned_cropped:
            return self._tokens_per_tile()
        return self._of_tiles(self.min_tiles, self.max_tiles + self.thumbnail)

    def _of_tiles(self, least: int, most: int) -> list[ImageSize]:
        """Images of the size of each grid of so many tiles."""
        side = self.tile_size
        return [ImageSize(columns * side, rows * side) for columns, rows in grids(least, most)]

    def count(self, image: ImageSize) -> Count:
        columns = rows = 1
        if self.cropped:
            choose = best_covering_of if self.weighs_area else closest_of
            columns, rows = choose(image, grids(self.min_tiles, self.max_tiles), self.tile_size)
        tile = self._tokens_per_tile()
        if columns * rows == 1:
            return Count(whole=tile)
        return Count(rows, columns, tile, whole=tile * self.thumbnail)

    def _tokens_per_tile(self) -> int:
        if self.tokens_per_tile is not None:
            return self.tokens_per_tile
        return int((self.tile_size // self.patch_size) ** 2 * self.downsample_ratio**2)


def closest_of(
    image: ImageSize, choices: Sequence[tuple[int, int]], tile_size: int
) -> tuple[int, int]:
    """Columns and rows of the grid whose aspect ratio is closest; (1, 1) if there is no grid.

    Of two equally close ones, the one of more tiles if the image has more than half its pixels.

    >>> closest_of(ImageSize(1280, 720), grids(1, 12), 448)
    (4, 2)
    """
    aspect, area = image.width / image.height, image.width * image.height
    best, least = (1, 1), float("inf")
    for columns, rows in choices:
        difference = abs(aspect - columns / rows)
        if difference < least:
            best, least = (columns, rows), difference
        elif difference == least and area > 0.5 * tile_size**2 * columns * rows:
            best = (columns, rows)
    return best


def best_covering_of(
    image: ImageSize, choices: Sequence[tuple[int, int]], tile_size: int
) -> tuple[int, int]:
    """Columns and rows of the first grid that has most of the aspect ratio and of the area.

    >>> best_covering_of(ImageSize(1280, 720), grids(1, 12), 512)
    (4, 2)
    """
    aspect, area = image.width / image.height, image.width * image.height
    best, most = (1, 1), float("-inf")
    for columns, rows in choices:
        ratio = columns / rows
        covered = min(columns * rows * tile_size * tile_size / area, _ENOUGH)
        score = covered * min(ratio / aspect, aspect / ratio)
        if score > most:
            best, most = (columns, rows), score
    return best


@lru_cache(maxsize=64)
def grids(min_tiles: int, max_tiles: int) -> tuple[tuple[int, int], ...]:
    """All (columns, rows) of so many tiles, fewest tiles first.

    Grids of as many tiles stand in the order of the engine's set, which is filled in this order.
    """
    found = [
        (columns, rows)
        for columns in range(1, max_tiles + 1)
        for rows in range(1, max_tiles // columns + 1)
        if columns * rows >= min_tiles
    ]
    found.sort(key=lambda grid: (max(*grid, min_tiles), grid))
    return tuple(sorted(set(found), key=lambda grid: grid[0] * grid[1]))


_FEWEST_OF_SECOND: Final = 3


@dataclass(frozen=True, slots=True)
class TwoPassTiles(ClosestTiles):
    """Counts the tiles of two grids for an image alone, and of the closest one for others."""

    twice: bool = True

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        """One of all grids, also of those with one tile more than the most."""
        least, most = (self.min_tiles, self.max_tiles) if self.cropped else (1, 1)
        return self._of_tiles(least, most + (self.thumbnail and most != 1))

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterable[Count]:
        return map(self._counted_twice if self.twice and len(items) == 1 else self.count, items)

    def _counted_twice(self, image: ImageSize) -> Count:
        most = self.max_tiles if self.cropped else 1
        columns, rows = closest_of(image, grids(1, most), self.tile_size)
        others = [
            grid
            for grid in grids(_FEWEST_OF_SECOND, most)
            if columns % grid[0] != 0 and rows % grid[1] != 0
        ]
        wide, high = closest_of(image, others, self.tile_size)
        tiles = sum(count + (count != 1) for count in (columns * rows, wide * high)) - 1
        side = self.tile_size // self.patch_size
        return Count(1, tiles, int(side**2 * self.downsample_ratio**2))
