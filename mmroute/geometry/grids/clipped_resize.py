"""Ovis 2.5: Qwen-VL's resize, but an aspect that is too large is clipped, and none is refused.

Source: vLLM ``transformers_utils/processors/ovis2_5.py`` (``construct_visual_placeholders``),
``model_executor/models/ovis2_5.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.grids.frame_groups import Groups, ResizedFrames
from mmroute.geometry.grids.smart_resize import SmartResize, resized
from mmroute.requests.items import ImageSize

_PLANNED_SIDE: Final = 1792  # of the image that the engine plans its encoder cache with
_ENDS: Final = 2  # tokens of the indicators in front of the features and behind them


@dataclass(frozen=True, slots=True)
class ClippedResize(SmartResize):
    """Resizes an image as Qwen-VL does, and counts one token more at each end."""

    temporal_patch_size: int = 1

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        return [ImageSize(_PLANNED_SIDE, _PLANNED_SIDE)]

    def count(self, image: ImageSize) -> Count:
        rows, columns = resized(image.height, image.width, self)
        return Count(whole=rows * columns // self.temporal_patch_size + _ENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedVideo(ResizedFrames):
    """Resizes a video's frames as Qwen-VL does, and counts one token more at each end."""

    def largest_item(self, plan: CachePlan) -> int:
        """The engine takes patches for tokens when it looks how many frames the context holds."""
        patches = (_PLANNED_SIDE // self.patch_size) ** 2
        room = plan.max_model_len - patches * plan.takes_images
        groups = max(1, room // patches)
        square = resized(_PLANNED_SIDE, _PLANNED_SIDE, self)
        return self.counted((groups, *square, None)).total

    def counted(self, of: Groups) -> Count:
        groups, rows, columns, _ = of
        return Count(whole=groups * rows * columns // self.temporal_patch_size + _ENDS)
