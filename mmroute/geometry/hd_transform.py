"""Phi-3-vision and Phi-3.5-vision: padded to whole 336-pixel tiles, at most `num_crops` of them.

Source: the "HD transform" of the models' ``image_processing_phi3_v.py``
(`calc_num_image_tokens_from_image_size`), as vLLM 0.33.0 ``phi3v.py`` calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.processor_kwargs import check_unread, positive_count
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement, fill
from mmroute.requests.items import ImageSize

_TILE: Final = 336
_TOKENS_PER_TILE: Final = 144
_TOKENS_PER_ROW: Final = 12
_MOST_CROPS: Final = 10_000  # no context holds more
_LARGEST: Final = ImageSize(50, 8000)


@dataclass(frozen=True, slots=True)
class HdTransform:
    """Counts tiles, a global view, and separators.

    Attributes:
        image_token_id: the fill.
        num_crops: the most tiles an image may have.
        target: text of the placeholder of one image, ``{n}`` its number counted from 1.
    """

    image_token_id: int
    num_crops: int
    target: str

    def max_embeds(self, _: CachePlan) -> int:
        """The engine measures it with a 50x8000 image."""
        return self.count(_LARGEST)

    def with_overrides(self, overrides: Overrides) -> HdTransform:
        kwargs = overrides.processor
        check_unread(kwargs)
        num_crops = positive_count(kwargs, "num_crops", self.num_crops, most=_MOST_CROPS)
        return replace(self, num_crops=num_crops)

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        for number, image in enumerate(items, 1):
            target = context.encode(self.target.replace("{n}", str(number)))
            counted = fill(self.image_token_id, self.count(image))
            yield counted._replace(target=tuple(target.tolist()))

    def count(self, image: ImageSize) -> int:
        """The number of image tokens.

        Raises:
            InexactError: `image_refused` if padding leaves a side without a pixel.
        """
        width, height = padded_size(image, self.num_crops)
        if width == 0 or height == 0:
            why = f"scaled to {self.num_crops} tiles, the short side has no pixel left"
            raise image_refused(image, why)
        tile_rows = height // _TILE
        tiles = tile_rows * width // _TILE
        return (tiles + 1) * _TOKENS_PER_TILE + 1 + (tile_rows + 1) * _TOKENS_PER_ROW


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
