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
