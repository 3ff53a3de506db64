"""Idefics3 and SmolVLM: the longest side is scaled to a fixed length, and covered with tiles.

Sources: transformers
``models/idefics3/image_processing_idefics3.py`` (`get_number_of_image_patches`), vLLM
``model_executor/models/idefics3.py`` and ``smolvlm.py``. Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

_MAX_SIDE: Final = 4096
_MOST_TILES: Final = 64  # in a row; an image of more fits no encoder cache


@dataclass(frozen=True, slots=True)
class LongEdgeTiles(OneByOne[ImageSize]):
    """Counts the tiles of an image, and the whole image."""

    tokens_per_tile: int
    longest_edge: int
    tile_size: int
    split: bool

    def __post_init__(self) -> None:
        if min(self.longest_edge, _MAX_SIDE) > self.tile_size * _MOST_TILES:
            raise ValueError(f"tiles of which at most {_MOST_TILES} stand in a row")

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        """A square of one tile."""
        return [ImageSize(self.tile_size, self.tile_size)]

    def count(self, image: ImageSize) -> Count:
        rows, columns = self.grid(image)
        return Count(rows, columns, self.tokens_per_tile, self.tokens_per_tile)

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of tiles; (0, 0) if the image is not cut."""
        if not self.split:
            return 0, 0
        height, width = self._scaled(image)
        rows, columns = math.ceil(height / self.tile_size), math.ceil(width / self.tile_size)
        return (rows, columns) if max(rows, columns) > 1 else (0, 0)

    def _scaled(self, image: ImageSize) -> tuple[int, int]:
        """Height and width after scaling: the short side is made even before the last limit."""
        aspect = image.width / image.height
        longest = self.longest_edge
        if image.width >= image.height:
            height = int(longest / aspect)
            height, width = max(height + height % 2, 1), longest
        else:
            width = int(longest * aspect)
            height, width = longest, max(width + width % 2, 1)
        aspect = width / height
        if width >= height and width > _MAX_SIDE:
            height, width = max(int(_MAX_SIDE / aspect), 1), _MAX_SIDE
        elif height > width and height > _MAX_SIDE:
            height, width = _MAX_SIDE, max(int(_MAX_SIDE * aspect), 1)
        return height, width
