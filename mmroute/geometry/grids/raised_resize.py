"""MiMo-V2-Omni: Qwen-VL's resize, which enlarges sides that are shorter than a token.

Sources: vLLM ``transformers_utils/processors/mimo_v2_omni.py`` (``_smart_resize``,
``process_video``), ``model_executor/models/mimo_v2_omni.py``. Checked with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.geometry.grids.frame_groups import FrameGroups, Groups
from mmroute.geometry.grids.smart_resize import check_aspect, largest_rectangle, smart_resize
from mmroute.requests.items import ImageSize, VideoSize

_PLANNED_FRAMES: Final = 14


@dataclass(frozen=True, slots=True)
class RaisedResize(MergedPatches):
    """Resizes an image as Qwen-VL does, but enlarges one with a side shorter than a token."""

    min_tokens: int
    max_tokens: int
    min_pixels: int = 0
    max_pixels: int = 0

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest area after the resize, in pixels."""
        unit = self.factor**2
        return self.min_pixels or self.min_tokens * unit, self.max_pixels or self.max_tokens * unit

    def largest_item(self, _: CachePlan) -> int:
        return math.prod(largest_rectangle(self.limits[1] // self.factor**2))

    def count(self, image: ImageSize) -> Count:
        return Count(*self.resized(image.height, image.width, self.limits[1]))

    def resized(self, height: int, width: int, max_pixels: int) -> tuple[int, int]:
        """Rows and columns of tokens."""
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
class RaisedVideo(FrameGroups):
    """Resizes a video's frames, and counts groups of them as if there was one frame a second."""

    min_tokens: int
    max_tokens: int
    total_tokens: int
    min_pixels: int = 0
    max_pixels: int = 0
    total_pixels: int = 0
    planned_rate: int

    def largest_item(self, plan: CachePlan) -> int:
        frames = 1
        while self._planned(frames + 1, plan) <= plan.max_model_len and frames < _PLANNED_FRAMES:
            frames += 1
        return self._planned(frames, plan)

    def _planned(self, frames: int, plan: CachePlan) -> int:
        counted = frames * self.planned_rate if frames > 1 else frames
        return -(-counted // self.temporal_patch_size) * plan.largest_image

    def seconds_per_pair(self, _: VideoSize) -> int:
        return self.temporal_patch_size

    def groups(self, video: VideoSize) -> Groups:
        frames, group = len(self.frames(video).indices), self.temporal_patch_size
        frame = RaisedResize(
            self.patch_size, self.merge_size,
            self.min_tokens, self.max_tokens, self.min_pixels, self.max_pixels,
        )  # fmt: skip
        least, most = frame.limits
        total = self.total_pixels or self.total_tokens * self.factor**2
        shared = max(least, min(total * group // max(frames, 1), most))
        times = tuple(float(at) for at in range(0, frames, group))
        return len(times), *frame.resized(video.height, video.width, shared), times
