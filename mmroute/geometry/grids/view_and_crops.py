"""DeepSeek-OCR: one view of the whole image, and crops of it if a side is long.

Sources: vLLM ``model_executor/models/deepseek_ocr.py``, ``deepseek_ocr2.py`` and
``transformers_utils/processors/deepseek_ocr.py``, whose constants the family specs repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.grids.closest_tiles import closest_grid
from mmroute.requests.items import ImageSize

_CROPS: Final = (2, 6)  # MIN_CROPS and MAX_CROPS


@dataclass(frozen=True, slots=True)
class ViewAndCrops(OneByOne[ImageSize]):
    """The view, the crops and a separator, all of one token.

    Attributes:
        base_tokens: feature positions along one side of the view.
        crop_tokens: feature positions along one side of a crop.
        crop_size: side of a crop, in pixels; an image without a longer side has no crops.
        row_ends: whether each row of features has one more at its end.
    """

    base_tokens: int
    crop_tokens: int
    crop_size: int
    row_ends: bool

    def max_embeds(self, _: CachePlan) -> int:
        """The engine's largest image is four crops."""
        return self.count(ImageSize(2 * self.crop_size, 2 * self.crop_size)).total

    def count(self, image: ImageSize) -> Count:
        view = self.base_tokens * (self.base_tokens + self.row_ends) + 1
        if max(image.width, image.height) <= self.crop_size:
            return Count(whole=view)
        columns, rows = closest_grid(
            image, tile_size=self.crop_size, min_tiles=_CROPS[0], max_tiles=_CROPS[1]
        )
        across, down = columns * self.crop_tokens, rows * self.crop_tokens
        return Count(down, across + self.row_ends, whole=view)
