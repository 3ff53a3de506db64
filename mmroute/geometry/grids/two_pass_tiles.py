"""H2OVL: an image alone is cut twice, by the closest grid and by one that divides it otherwise.

Source: vLLM ``transformers_utils/processors/h2ovl.py``, ``model_executor/models/h2ovl.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.grids.closest_tiles import ClosestTiles, closest_of, grids
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize

_FEWEST_OF_SECOND: Final = 3


@dataclass(frozen=True, slots=True)
class TwoPassTiles:
    """Counts the tiles of two grids for an image alone, and of the closest one for one of several.

    Attributes:
        tile_size: the side of a tile, in pixels.
        patch_size: the side of a patch, in pixels.
        downsample_ratio: the number of feature positions along a side of a tile for each patch.
        min_tiles: the fewest tiles of a grid.
        max_tiles: the most tiles of a grid.
        cropped: whether images are cut into tiles at all.
        thumbnail: whether a grid of several tiles is followed by the whole image as one more.
        twice: whether an image alone has two grids.
    """

    tile_size: int
    patch_size: int
    downsample_ratio: float
    min_tiles: int
    max_tiles: int
    cropped: bool = True
    thumbnail: bool = True
    twice: bool = True

    @property
    def _once(self) -> ClosestTiles:
        return ClosestTiles(
            tile_size=self.tile_size,
            min_tiles=self.min_tiles,
            max_tiles=self.max_tiles,
            patch_size=self.patch_size,
            downsample_ratio=self.downsample_ratio,
            cropped=self.cropped,
            thumbnail=self.thumbnail,
        )

    def max_embeds(self, _: CachePlan) -> int:
        """The engine plans with an image alone, and tries one tile more than the most."""
        least, most = (self.min_tiles, self.max_tiles) if self.cropped else (1, 1)
        most += self.thumbnail and most != 1
        sizes = [
            ImageSize(columns * self.tile_size, rows * self.tile_size)
            for columns, rows in grids(least, most)
        ]
        return max(self._alone(size).total for size in sizes)

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterable[Count]:
        return map(self._alone if len(items) == 1 else self._once.count, items)

    def _alone(self, image: ImageSize) -> Count:
        return self._counted_twice(image) if self.twice else self._once.count(image)

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
