"""MiniMax-M3: a resize by area, or by the long side where the model or a request says so.

Sources: vLLM ``transformers_utils/processors/minimax_m3.py`` and
``models/minimax_m3/common/mm_preprocess.py``. Checked with it. The rule for enlarged short sides is
that of vLLM's Rust frontend, and was found by asking it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedFrames, MergedPatches
from mmroute.geometry.grids.smart_resize import (
    MAX_ASPECT,
    check_aspect,
    smart_resize,
    unresized,
)
from mmroute.requests.items import ImageSize, VideoSize

# Constants of the processor, which neither files nor requests change.
_MIN_PIXELS: Final = 4 * 28 * 28
_MIN_SHORT_SIDE: Final = 112
_ROOM: Final = 1.25  # of the limit: what is shrunk a second time
_MAX_TOTAL_PIXELS: Final = 12_845_056
_MOST_PAIRS: Final = 250  # of the largest video that the engine plans with


@dataclass(frozen=True, slots=True)
class MiniMaxResize(MergedPatches):
    """Resizes an image by MiniMax's rule, and counts rows and columns of tokens.

    Attributes:
        max_pixels: the largest area after the resize, in pixels.
        max_long_side: the longest side after the resize, in pixels. Where it is given, areas do not
            count.
        resize: whether images are resized at all.
        min_pixels: the smallest area after a resize by area, in pixels.
        enlarges: whether a short side is enlarged before a resize by area.
        least_shrunk: the fewest tokens along a side that is shrunk to stay within `max_pixels`.
    """

    max_pixels: int
    max_long_side: int | None = None
    resize: bool = True
    min_pixels: int = _MIN_PIXELS
    enlarges: bool = False
    least_shrunk: int = 0

    def max_embeds(self, _: CachePlan) -> int:
        """A square image."""
        if self.max_long_side is None:
            side = math.isqrt(self.max_pixels)
        else:
            side = min(self.max_long_side, math.isqrt(_MAX_TOTAL_PIXELS))
        return max(1, side // self.factor) ** 2

    def count(self, image: ImageSize) -> Count:
        height, width = image.height, image.width
        if not self.resize:
            grid = unresized(image, self.factor)
        elif self.max_long_side is None:
            check_aspect(height, width)
            enlarges = self.enlarges and min(height, width) < _MIN_SHORT_SIDE
            grid = self._enlarged(height, width) if enlarges else self.by_area(height, width)
        else:
            grid = self._by_long_side(height, width, self.max_long_side)
        return Count(*grid)

    def by_area(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens after a resize by area.

        Raises:
            InexactError: `image_refused`.
        """
        return smart_resize(
            height,
            width,
            factor=self.factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            least_rounded=1,
            least_shrunk=self.least_shrunk,
        )

    def _enlarged(self, height: int, width: int) -> tuple[int, int]:
        scale = _MIN_SHORT_SIDE / min(height, width)
        height, width = (math.floor(side * scale + 0.5) for side in (height, width))
        grid = self.by_area(height, width)
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
        return self.by_area(height, width)

    def _by_long_side(self, height: int, width: int, longest: int) -> tuple[int, int]:
        check_aspect(height, width)
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
class MiniMaxVideo(MergedFrames):
    """Counts groups of frames, each frame resized by its area.

    Attributes:
        max_pixels: the largest area of a frame after the resize, in pixels.
        min_pixels: the smallest area of a frame after the resize, in pixels.
        temporal_patch_size: the number of frames of a token.
        fixed_merge: the number of patches along one side of a token that the engine counts with,
            where the processor may have another; None: the processor's.
        max_long_side: the longest side after the resize, in pixels. No processor with it was
            observed.
    """

    max_pixels: int
    min_pixels: int = _MIN_PIXELS
    temporal_patch_size: int = 2
    fixed_merge: int | None = None
    max_long_side: int | None = None

    def max_embeds(self, plan: CachePlan) -> int:
        """The engine plans with frames of the largest area, as many as the context holds.

        Source: vLLM ``models/minimax_m3/common/mm_preprocess.py``
        (``get_video_size_with_most_features``, ``get_max_video_tokens``).
        """
        if self.max_long_side is not None:  # with which every video is refused
            return 1
        units = max(1, self.max_pixels // self.factor**2)
        rows = next(n for n in range(math.isqrt(units), 0, -1) if not units % n)
        tokens = math.prod(self._grid(rows * self.factor, units // rows * self.factor))
        return min(_MOST_PAIRS, max(1, plan.max_model_len // tokens)) * tokens

    def patches(self, video: VideoSize) -> tuple[int, int, int]:
        """Groups of frames, rows and columns of patches."""
        rows, columns = self._frame(video)
        groups = -(-len(self.frames(video).indices) // self.temporal_patch_size)
        return groups, rows * self.merge_size, columns * self.merge_size

    def count(self, video: VideoSize) -> Count:
        rows, columns = self._frame(video)
        frames = self.frames(video)
        firsts = frames.indices[:: self.temporal_patch_size]
        times = tuple(index / frames.fps for index in firsts) if frames.fps > 0 else ()
        merged = rows * columns * self.merge_size**2 // (self.fixed_merge or self.merge_size) ** 2
        return Count(len(firsts), 1, merged, times=times)

    def _frame(self, video: VideoSize) -> tuple[int, int]:
        """Rows and columns of tokens of a frame."""
        if self.max_long_side is not None:
            raise InexactError(
                Reason.VIDEO_NOT_PREDICTABLE,
                "max_long_side_pixel is set, whose effect on videos was not observed",
            )
        return self._grid(video.height, video.width)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        check_aspect(height, width)
        images = MiniMaxResize(
            self.patch_size, self.merge_size, self.max_pixels, min_pixels=self.min_pixels
        )
        return images.by_area(height, width)
