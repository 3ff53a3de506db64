"""MiMo-V2-Omni and Dots3 Note: Qwen-VL's resize, with rules of their own for the shortest sides.

Sources: vLLM ``transformers_utils/processors/mimo_v2_omni.py`` (``_smart_resize``,
``process_video``), ``model_executor/models/mimo_v2_omni.py`` and
``models/dots3_note/common/processor.py`` (``resized_size``). Checked with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedFrames, MergedPatches
from mmroute.geometry.grids.smart_resize import check_aspect, largest_rectangle, smart_resize
from mmroute.requests.items import ImageSize, VideoSize

_PLANNED_FRAMES: Final = 14
_LEAST_PART: Final = 4  # of a token's side that a side of an image has at least


@dataclass(frozen=True, slots=True)
class RaisedResize(MergedPatches):
    """Resizes an image as Qwen-VL does, but enlarges one with a side shorter than a token.

    Attributes:
        min_tokens: the fewest tokens, where `min_pixels` is None.
        max_tokens: the most tokens, where `max_pixels` is None.
        min_pixels: the smallest area after the resize, in pixels.
        max_pixels: the largest area after the resize, in pixels.
    """

    min_tokens: int
    max_tokens: int
    min_pixels: int | None = None
    max_pixels: int | None = None

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest area after the resize, in pixels."""
        unit = self.factor**2
        return self.min_pixels or self.min_tokens * unit, self.max_pixels or self.max_tokens * unit

    def max_embeds(self, _: CachePlan) -> int:
        """The most tokens that make a rectangle which is not too thin."""
        return math.prod(largest_rectangle(self.limits[1] // self.factor**2))

    def count(self, image: ImageSize) -> Count:
        return Count(*self.resized(image.height, image.width, self.limits[1]))

    def resized(self, height: int, width: int, max_pixels: int) -> tuple[int, int]:
        """Rows and columns of tokens.

        Raises:
            InexactError: `image_refused`.
        """
        factor = self.factor
        if min(height, width) >= factor:
            check_aspect(height, width)
        elif height < width:
            height, width = factor, int(width * factor / height)
        else:
            height, width = int(height * factor / width), factor
        return smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=self.limits[0],
            max_pixels=max_pixels,
            least_shrunk=0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedVideo(MergedFrames):
    """Resizes a video's frames, and counts pairs of frames as if there was one frame a second.

    Attributes:
        min_tokens: the fewest tokens of a frame, if `min_pixels` is None.
        max_tokens: the most tokens of a frame, if `max_pixels` is None.
        min_pixels: the smallest area of a frame after the resize, in pixels.
        max_pixels: the largest area of a frame after the resize, in pixels.
        total_tokens: the most tokens of all frames, where `total_pixels` is None.
        total_pixels: the largest area of all frames together.
        group: the number of frames of a group.
        planned_rate: the number of frames that the engine plans with for each frame.
    """

    min_tokens: int
    max_tokens: int
    min_pixels: int | None = None
    max_pixels: int | None = None
    total_tokens: int
    total_pixels: int | None = None
    group: int
    planned_rate: int

    def max_embeds(self, plan: CachePlan) -> int:
        frames = 1
        while self._planned(frames + 1, plan) <= plan.max_model_len and frames < _PLANNED_FRAMES:
            frames += 1
        return self._planned(frames, plan)

    def _planned(self, frames: int, plan: CachePlan) -> int:
        counted = frames * self.planned_rate if frames > 1 else frames
        return -(-counted // self.group) * plan.largest_image

    def seconds_per_pair(self, _: VideoSize) -> int:
        """The seconds from one group of frames to the next."""
        return self.group

    def patches(self, video: VideoSize) -> tuple[int, int, int]:
        """Groups of frames, rows and columns of patches."""
        groups, rows, columns = self._tokens(video)
        return groups, rows * self.merge_size, columns * self.merge_size

    def count(self, video: VideoSize) -> Count:
        groups, rows, columns = self._tokens(video)
        times = tuple(float(at * self.group) for at in range(groups))
        return Count(groups, 1, rows * columns, times=times)

    def _tokens(self, video: VideoSize) -> tuple[int, int, int]:
        frames = len(self.frames(video).indices)
        frame = RaisedResize(
            self.patch_size, self.merge_size,
            self.min_tokens, self.max_tokens, self.min_pixels, self.max_pixels,
        )  # fmt: skip
        least, most = frame.limits
        total = self.total_pixels or self.total_tokens * self.factor**2
        shared = max(least, min(total * self.group // max(frames, 1), most))
        return -(-frames // self.group), *frame.resized(video.height, video.width, shared)


@dataclass(frozen=True, slots=True)
class RegrownResize(MergedPatches):
    """Resizes an image as Qwen-VL does, but shrinks one again that was enlarged too far.

    Attributes:
        min_pixels: the smallest area after the resize, in pixels.
        max_pixels: the largest area after the resize, in pixels.
        planned_pixels: the area that the engine plans its encoder cache with.
    """

    min_pixels: int
    max_pixels: int
    planned_pixels: int

    def max_embeds(self, _: CachePlan) -> int:
        return self.planned_pixels // self.factor**2

    def count(self, image: ImageSize) -> Count:
        factor = self.factor
        if min(image.height, image.width) < factor // _LEAST_PART:
            raise image_refused(image, f"a side is shorter than {factor // _LEAST_PART} pixels")
        check_aspect(image.height, image.width)
        rows, columns = smart_resize(
            image.height,
            image.width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            least_rounded=1,
        )
        rounded = math.prod(max(1, round(side / factor)) for side in (image.height, image.width))
        if rounded * factor**2 <= self.max_pixels < rows * columns * factor**2:
            shrink = math.sqrt(rows * factor * columns * factor / self.max_pixels)
            rows = max(1, math.floor(rows * factor / shrink / factor))
            columns = max(1, math.floor(columns * factor / shrink / factor))
        return Count(rows, columns)
