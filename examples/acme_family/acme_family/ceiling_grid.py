"""One token for each square of an image, the last of a row or column being cut off."""

from __future__ import annotations

from dataclasses import dataclass

from mmroute import ImageSize
from mmroute.geometry import CachePlan, Overrides
from mmroute.geometry.filled_images import FilledImages
from mmroute.geometry.processor_kwargs import check_ignored


@dataclass(frozen=True, slots=True)
class CeilingGrid(FilledImages):
    """Counts squares, rounding both sides up.

    Attributes:
        square: side of a square, in pixels.
        max_side: the longest side that the engine takes, in pixels.
    """

    square: int
    max_side: int

    def max_embeds(self, _: CachePlan) -> int:
        """The most tokens of one image."""
        return self.count(ImageSize(self.max_side, self.max_side))

    def with_overrides(self, overrides: Overrides) -> CeilingGrid:
        """The same: no option of a request changes the count."""
        check_ignored(overrides.processor)
        return self

    def count(self, image: ImageSize) -> int:
        """The number of image tokens.

        >>> CeilingGrid(image_token_id=9, square=64, max_side=1024).count(ImageSize(65, 64))
        2
        """
        return -(-image.width // self.square) * -(-image.height // self.square)
