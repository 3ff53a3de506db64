"""Phi-3-vision, Phi-3.5-vision and Phi-4-multimodal: padded to whole tiles, and a global view.

Sources: the "HD transform" of the models' ``image_processing_phi3_v.py``
(`calc_num_image_tokens_from_image_size`), as vLLM ``phi3v.py`` calls it; vLLM
``model_executor/models/phi4mm.py`` (`_compute_num_image_tokens`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.grids.closest_tiles import closest_of
from mmroute.requests.items import ImageSize

_TILE: Final = 336
_TOKENS_PER_TILE: Final = 144
_TOKENS_PER_ROW: Final = 12
_LARGEST: Final = ImageSize(50, 8000)


@dataclass(frozen=True, slots=True)
class HdTransform(OneByOne[ImageSize]):
    """Pads an image to whole tiles, and counts the tiles, a global view and separators together."""

    num_crops: int

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        return [_LARGEST]

    def padded(self, image: ImageSize) -> tuple[int, int]:
        width, height = padded_size(image, self.num_crops)
        return height, width

    def count(self, image: ImageSize) -> Count:
        width, height = padded_size(image, self.num_crops)
        if width == 0 or height == 0:
            why = f"scaled to {self.num_crops} tiles, the short side has no pixel left"
            raise image_refused(image, why)
        tile_rows = height // _TILE
        tiles = tile_rows * width // _TILE
        separators = 1 + (tile_rows + 1) * _TOKENS_PER_ROW
        return Count(whole=(tiles + 1) * _TOKENS_PER_TILE + separators)


_SIGLIP_TILE: Final = 448
_SIGLIP_PATCH: Final = 14
_GLOBAL_VIEW: Final = 256 + 16 + 1  # positions, row ends, and a separator
_LEAST_SIDE: Final = 10


@dataclass(frozen=True, slots=True)
class UnpaddedTiles(OneByOne[ImageSize]):
    """Counts the tiles without their padding, row ends, and a global view: Phi-4-multimodal."""

    max_tiles: int

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        return [ImageSize(_SIGLIP_TILE, _SIGLIP_TILE * self.max_tiles)]

    def padded(self, image: ImageSize) -> tuple[int, int]:
        columns, rows = (-(-side // _SIGLIP_TILE) for side in (image.width, image.height))
        if columns * rows > self.max_tiles:
            columns, rows = closest_of(image, _tilings(self.max_tiles), _SIGLIP_TILE)
        return rows * _SIGLIP_TILE, columns * _SIGLIP_TILE

    def padded_tokens(self, image: ImageSize) -> int:
        """The processor's own count, with padding: the tokens of tiles, and one for a column."""
        height, width = self.padded(image)
        side = _SIGLIP_PATCH * 2
        return (height // side + 1) * (width // side) + _GLOBAL_VIEW

    def count(self, image: ImageSize) -> Count:
        height, width = self.padded(image)
        by_width, by_height = width / image.width, height / image.height
        if by_width < by_height:
            scaled_width, scaled_height = width, int(image.height * by_width)
        else:
            scaled_width, scaled_height = int(image.width * by_height), height
        if min(scaled_width, scaled_height) < _LEAST_SIDE:
            raise image_refused(image, f"scaled, a side has less than {_LEAST_SIDE} pixels")
        feature_columns, feature_rows = (
            -(-(padded // _SIGLIP_PATCH - (padded - scaled) // _SIGLIP_PATCH) // 2)
            for padded, scaled in ((width, scaled_width), (height, scaled_height))
        )
        return Count(feature_rows, feature_columns + 1, whole=_GLOBAL_VIEW)


@lru_cache(maxsize=16)
def _tilings(most: int) -> tuple[tuple[int, int], ...]:
    """All (columns, rows) of so many tiles, fewest first; of as many in the order of a set."""
    sides = range(1, most + 1)
    found = {(columns, rows) for columns in sides for rows in sides if columns * rows <= most}
    return tuple(sorted(found, key=lambda tiling: tiling[0] * tiling[1]))


def padded_size(image: ImageSize, num_crops: int) -> tuple[int, int]:
    """Width and height after the transform, both multiples of 336 pixels.

    >>> padded_size(ImageSize(640, 480), 4)
    (672, 672)
    """
    long, short = max(image.width, image.height), min(image.width, image.height)
    ratio = long / short
    scale = 1
    while scale * math.ceil(scale / ratio) <= num_crops:
        scale += 1
    padded_long = (scale - 1) * _TILE
    padded_short = math.ceil(int(padded_long / ratio) / _TILE) * _TILE
    if image.width < image.height:
        return padded_short, padded_long
    return padded_long, padded_short
