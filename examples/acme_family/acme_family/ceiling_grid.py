"""One token for each square of an image, the last of a row or column being cut off."""

from __future__ import annotations

from dataclasses import dataclass

from mmroute import ImageSize
from mmroute.geometry import CachePlan, Count
from mmroute.geometry.grid import OneByOne


@dataclass(frozen=True, slots=True)
class CeilingGrid(OneByOne[ImageSize]):
    """Counts squares, rounding both sides up.

    Attributes:
        square: side of a square, in pixels.
        max_side: the longest side that the engine takes, in pixels.
    """

    square: int
    max_side: int

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        """The image of most tokens."""
        return [ImageSize(self.max_side, self.max_side)]

    def count(self, image: ImageSize) -> Count:
        """Rows and columns of image tokens.

        >>> CeilingGrid(square=64, max_side=1024).count(ImageSize(65, 64)).total
        2
        """
        return Count(rows=-(-image.height // self.square), columns=-(-image.width // self.square))
