"""Phi-3-vision and Phi-3.5-vision: padded to whole 336-pixel tiles, at most `num_crops` of them.

Source: the "HD transform" of the models' ``image_processing_phi3_v.py``
(`calc_num_image_tokens_from_image_size`), as vLLM ``phi3v.py`` calls it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

_TILE: Final = 336
_TOKENS_PER_TILE: Final = 144
_TOKENS_PER_ROW: Final = 12
_LARGEST: Final = ImageSize(50, 8000)


@dataclass(frozen=True, slots=True)
class HdTransform(OneByOne[ImageSize]):
    """Tiles, a global view, and separators, all of one token.

    Attributes:
        num_crops: the most tiles an image may have.
    """

    num_crops: int

    def max_embeds(self, _: CachePlan) -> int:
        """The engine measures it with a 50x8000 image."""
        return self.count(_LARGEST).total

    def padded(self, image: ImageSize) -> tuple[int, int]:
        """Height and width of the image that is cut, in pixels."""
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
