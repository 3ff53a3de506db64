"""Step 3: windows over an image that is long or large, then the whole image.

Source: vLLM 0.33.0 ``transformers_utils/processors/step3_vl.py`` (`ImagePatcher`), whose constants
are repeated here. The engine uses it for Step 3.7 too, not transformers' own processor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import check_known, positive_count, switch
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize

_MAX_SIDE: Final = 3024
_WINDOW: Final = 504
_SMALL: Final = 728  # an image of shorter sides has windows only if it is elongated
_ELONGATED: Final = 1.5
_VERY_ELONGATED: Final = 4
_THIN: Final = 32  # pixels; an image that is thin and very elongated is padded to a square
_REST: Final = 0.2  # of a window that is cut off rather than enlarged to another window

_IMAGE: Final = "num_image_feature_size"
_PATCH: Final = "num_patch_feature_size"
_SIZES: Final = ("image_size", "patch_size")  # of what the encoder is shown
_KNOWN: Final = ("enable_patch", _IMAGE, _PATCH, *_SIZES)
_MOST_PIXELS: Final = 4096


@dataclass(frozen=True, slots=True)
class WindowCrops(OneByOne[ImageSize]):
    """Builds framed windows, a line break after each row but the last, and the framed image.

    Two rows of one window (w: its features, i: those of the image) are ``patch_start w patch_end
    newline patch_start w patch_end start i end``.

    Attributes:
        image_token_id: a feature position.
        start_token_id: what opens the image.
        end_token_id: what closes it.
        patch_start_token_id: what opens a window.
        patch_end_token_id: what closes it.
        newline_token_id: what stands between two rows of windows.
        tokens_per_image: feature positions of the image.
        tokens_per_window: feature positions of a window.
        cropped: whether there are windows at all.
    """

    image_token_id: int
    start_token_id: int
    end_token_id: int
    patch_start_token_id: int
    patch_end_token_id: int
    newline_token_id: int
    tokens_per_image: int
    tokens_per_window: int
    cropped: bool = True

    def max_embeds(self, _: CachePlan) -> int:
        """The engine counts all tokens of a large square."""
        return len(self._framed(ImageSize(_MAX_SIDE, _MAX_SIDE)).token_ids)

    def with_overrides(self, overrides: Overrides) -> WindowCrops:
        """The processor fails on names that it does not know."""
        given = overrides.processor
        check_known(given, *_KNOWN)
        for name in _SIZES:
            positive_count(given, name, 1, most=_MOST_PIXELS)
        return replace(
            self,
            tokens_per_image=positive_count(given, _IMAGE, self.tokens_per_image),
            tokens_per_window=positive_count(given, _PATCH, self.tokens_per_window),
            cropped=switch(given, "enable_patch", default=self.cropped),
        )

    def replacement(self, image: ImageSize, _: ModelContext) -> Replacement:
        return self._framed(image)

    def _framed(self, image: ImageSize) -> Replacement:
        columns, rows = window_grid(image) if self.cropped else (0, 0)
        opening, closing = [self.patch_start_token_id], [self.patch_end_token_id]
        inner = FramedRun(opening, self.tokens_per_window, closing)
        last = FramedRun(opening, self.tokens_per_window, [*closing, self.newline_token_id])
        windows = [*[inner] * (columns - 1), last] * (rows - 1) + [inner] * columns * (rows > 0)
        whole = FramedRun([self.start_token_id], self.tokens_per_image, [self.end_token_id])
        return framed_runs(self.image_token_id, [*windows, whole])


def window_grid(image: ImageSize) -> tuple[int, int]:
    """Columns and rows of windows; (0, 0) for none.

    >>> window_grid(ImageSize(1280, 720))
    (3, 2)

    Raises:
        InexactError: `image_refused` if a scaled side has no pixel left.
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
    """How many windows there are along a side."""
    ratio = side / window
    if ratio < 1:
        return 1
    return math.floor(ratio) + (ratio - side // window > _REST)
