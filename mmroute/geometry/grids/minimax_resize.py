"""MiniMax-M3: a resize by area, or by the long side where the model or a request says so.

Sources: vLLM ``transformers_utils/processors/minimax_m3.py`` and
``models/minimax_m3/common/mm_preprocess.py`` (``get_video_size_with_most_features``,
``get_max_video_tokens``). Checked with it. The rule for enlarged short sides is that
of another frontend of the engine, and was found by asking it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.grids.frame_groups import Groups, ResizedFrames
from mmroute.geometry.grids.smart_resize import (
    MAX_ASPECT,
    SmartResize,
    check_aspect,
    resized,
    unresized,
)
from mmroute.requests.items import ImageSize, VideoSize

# Constants of the processor, which neither files nor requests change.
_MIN_SHORT_SIDE: Final = 112
_ROOM: Final = 1.25  # of the limit: what is shrunk a second time
_MAX_TOTAL_PIXELS: Final = 12_845_056
_MOST_GROUPS: Final = 250  # of the largest video that the engine plans with


@dataclass(frozen=True, slots=True)
class MiniMaxResize(SmartResize):
    """Resizes an image by MiniMax's rule, and counts rows and columns of tokens."""

    max_long_side: int | None = None
    enlarges: bool = False

    def largest_item(self, _: CachePlan) -> int:
        """The tokens of a square image."""
        if self.max_long_side is None:
            side = math.isqrt(self.max_pixels)
        else:
            side = min(self.max_long_side, math.isqrt(_MAX_TOTAL_PIXELS))
        return max(1, side // self.factor) ** 2

    def count(self, image: ImageSize) -> Count:
        return Count(*self._tokens(image))

    def _tokens(self, image: ImageSize) -> tuple[int, int]:
        height, width = image.height, image.width
        if not self.resize:
            return unresized(image, self.factor)
        check_aspect(height, width)
        if self.max_long_side is not None:
            return self._by_long_side(height, width, self.max_long_side)
        if self.enlarges and min(height, width) < _MIN_SHORT_SIDE:
            return self._enlarged(height, width)
        return resized(height, width, self, as_they_are=True)

    def _enlarged(self, height: int, width: int) -> tuple[int, int]:
        scale = _MIN_SHORT_SIDE / min(height, width)
        height, width = (math.floor(side * scale + 0.5) for side in (height, width))
        grid = resized(height, width, self, as_they_are=True)
        fits = math.prod(grid) * self.factor**2 <= self.max_pixels
        if fits and max(grid) <= MAX_ASPECT * min(grid):
            return grid
        # The resize is done twice, and the limits hold for both.
        excess = math.sqrt(height * width / (_ROOM * self.max_pixels))
        short = min(height, width)
        height, width = (
            math.ceil(side / excess) if side == short else math.floor(side / excess)
            for side in (height, width)
        )
        return resized(height, width, self, as_they_are=True)

    def _by_long_side(self, height: int, width: int, longest: int) -> tuple[int, int]:
        scale = 1.0
        if max(height, width) > longest:
            scale = longest / max(height, width)
        elif min(height, width) < _MIN_SHORT_SIDE:
            scale = _MIN_SHORT_SIDE / min(height, width)
        rows = max(1, round(height * scale / self.factor))
        columns = max(1, round(width * scale / self.factor))
        if rows * columns * self.factor**2 > _MAX_TOTAL_PIXELS:
            why = f"after the resize it has more than {_MAX_TOTAL_PIXELS} pixels"
            raise image_refused(f"{width}x{height}", why)
        return rows, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniMaxVideo(ResizedFrames):
    """Counts groups of frames, each frame resized by its area."""

    max_long_side: int | None = None

    def largest_item(self, plan: CachePlan) -> int:
        """Frames of the largest area, as many as the context holds."""
        if self.max_long_side is not None:  # with which every video is refused
            return 1
        factor, units = self.factor, max(1, self.max_pixels // self.factor**2)
        rows = next(n for n in range(math.isqrt(units), 0, -1) if not units % n)
        tokens = math.prod(resized(rows * factor, units // rows * factor, self))
        return min(_MOST_GROUPS, max(1, plan.max_model_len // tokens)) * tokens

    def groups(self, video: VideoSize) -> Groups:
        if self.max_long_side is not None:
            raise InexactError(
                Reason.VIDEO_NOT_PREDICTABLE,
                "max_long_side_pixel is set, whose effect on videos was not observed",
            )
        tokens = resized(video.height, video.width, self)
        frames = self.frames(video)
        firsts = frames.indices[:: self.temporal_patch_size]
        times = tuple(index / frames.fps for index in firsts) if frames.fps > 0 else ()
        return len(firsts), *tokens, times
