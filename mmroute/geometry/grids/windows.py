"""Step 3: windows over an image that is long or large, then the whole image.

Source: vLLM ``transformers_utils/processors/step3_vl.py`` (`ImagePatcher`), whose constants
are repeated here. The engine uses it for Step 3.7 too, not transformers' own processor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

_MAX_SIDE: Final = 3024
_WINDOW: Final = 504
_SMALL: Final = 728  # an image of shorter sides has windows only if it is elongated
_ELONGATED: Final = 1.5
_VERY_ELONGATED: Final = 4
_THIN: Final = 32  # pixels; an image that is thin and very elongated is padded to a square
_REST: Final = 0.2  # of a window that is cut off rather than enlarged to another window


@dataclass(frozen=True, slots=True)
class Windows(OneByOne[ImageSize]):
    """Counts the tokens of the windows over a large image, and of the whole image."""

    tokens_per_image: int
    tokens_per_window: int
    cropped: bool = True

    def largest_item(self, _: CachePlan) -> int:
        """The engine counts all tokens of a large square, also those around its parts."""
        largest = self.count(ImageSize(_MAX_SIDE, _MAX_SIDE))
        parts, breaks = largest.rows * largest.columns + 1, max(0, largest.rows - 1)
        return largest.total + 2 * parts + breaks

    def count(self, image: ImageSize) -> Count:
        columns, rows = window_grid(image) if self.cropped else (0, 0)
        return Count(rows, columns, self.tokens_per_window, self.tokens_per_image)


def window_grid(image: ImageSize) -> tuple[int, int]:
    """Columns and rows of windows; (0, 0) for none.

    >>> window_grid(ImageSize(1280, 720))
    (3, 2)
    """
    width, height = image.width, image.height
    long, short = max(width, height), min(width, height)
    if short < _THIN and long / short > _VERY_ELONGATED:
        width = height = long
    if long > _MAX_SIDE:
        scale = _MAX_SIDE / long
        width, height = int(width * scale), int(height * scale)
    long, short = max(width, height), min(width, height)
    if short == 0:
        why = f"scaled to {_MAX_SIDE} pixels, the short side has no pixel left"
        raise image_refused(image, why)
    window = _window(long, short)
    if not window:
        return 0, 0
    return _count(width, window), _count(height, window)


def _window(long: int, short: int) -> int:
    """Side of a window in pixels; 0 for no windows."""
    if long < _SMALL:
        return short if long / short > _ELONGATED else 0
    return min(short, _WINDOW) if long / short > _VERY_ELONGATED else _WINDOW


def _count(side: int, window: int) -> int:
    """The number of windows along a side."""
    ratio = side / window
    if ratio < 1:
        return 1
    return math.floor(ratio) + (ratio - side // window > _REST)
