"""Ovis 2.5: Qwen-VL's resize, but an aspect that is too large is clipped, and none is refused.

Source: vLLM ``transformers_utils/processors/ovis2_5.py`` (``smart_resize``,
``construct_visual_placeholders``), ``model_executor/models/ovis2_5.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, MergedFrames, MergedPatches
from mmroute.geometry.grids.smart_resize import MAX_ASPECT, smart_resize
from mmroute.requests.items import ImageSize, VideoSize

_PLANNED_SIDE: Final = 1792  # of the image that the engine plans its encoder cache with
_ENDS: Final = 2  # tokens of the indicators in front of the features and behind them


@dataclass(frozen=True, slots=True)
class ClippedResize(MergedPatches):
    """Resizes an image as Qwen-VL does, and counts one token more at each end.

    Attributes:
        frame_patches: the number of frames of a patch.
        min_pixels: the smallest area after the resize, in pixels.
        max_pixels: the largest area after the resize, in pixels.
    """

    frame_patches: int
    min_pixels: int
    max_pixels: int

    def max_embeds(self, _: CachePlan) -> int:
        return self.count(ImageSize(_PLANNED_SIDE, _PLANNED_SIDE)).total

    def count(self, image: ImageSize) -> Count:
        return self.count_frames(image.height, image.width, 1)

    def count_frames(self, height: int, width: int, frames: int) -> Count:
        """The tokens of so many frames.

        Raises:
            InexactError: `image_refused` if a side becomes 0.
        """
        factor = self.factor
        rows, columns = smart_resize(
            *_clipped(height, width, factor),
            factor=factor,
            min_pixels=min(self.min_pixels, self.max_pixels),
            max_pixels=self.max_pixels,
            least_shrunk=0,
        )
        groups = -(-frames // self.frame_patches)
        return Count(whole=groups * rows * columns // self.frame_patches + _ENDS)


def _clipped(height: int, width: int, factor: int) -> tuple[int, int]:
    """Height and width without a side shorter than the factor, or an aspect above the largest.

    >>> _clipped(14, 100, 28), _clipped(30, 9000, 28)
    ((28, 200), (30, 6000))
    """
    if min(height, width) >= factor:
        return min(height, MAX_ASPECT * width), min(width, MAX_ASPECT * height)
    if height < width:
        return factor, round(factor / height * width)
    return round(factor / width * height), factor


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedVideo(MergedFrames):
    """Resizes a video's frames as Qwen-VL does, and counts one token more at each end.

    Attributes:
        frame_patches: the number of frames of a patch.
        min_pixels: the smallest area of a frame after the resize, in pixels.
        max_pixels: the largest area of a frame after the resize, in pixels.
    """

    frame_patches: int
    min_pixels: int
    max_pixels: int

    @property
    def _images(self) -> ClippedResize:
        return ClippedResize(
            self.patch_size, self.merge_size, self.frame_patches, self.min_pixels, self.max_pixels
        )

    def max_embeds(self, plan: CachePlan) -> int:
        """The engine takes patches for tokens when it looks how many frames the context holds."""
        patches = (_PLANNED_SIDE // self.patch_size) ** 2
        room = plan.max_model_len - patches * plan.takes_images
        frames = max(1, room // patches * self.frame_patches)
        return self._images.count_frames(_PLANNED_SIDE, _PLANNED_SIDE, frames).total

    def count(self, video: VideoSize) -> Count:
        frames = len(self.frames(video).indices)
        return self._images.count_frames(video.height, video.width, frames)
