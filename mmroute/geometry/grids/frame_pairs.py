"""Qwen2-VL, Qwen2.5-VL and Qwen-Omni: pairs of frames, each resized as an image is.

Sources: transformers ``models/qwen2_vl/video_processing_qwen2_vl.py``, vLLM
``model_executor/models/qwen2_vl.py`` and ``hyperclovax_vision_v2.py``. Checked with both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from mmroute.geometry.grid import CachePlan, Count, MergedFrames
from mmroute.geometry.grids.smart_resize import check_aspect, smart_resize, unresized
from mmroute.requests.items import ImageSize, VideoSize

_PAIR: Final = 2
_MOST_PAIRS: Final = 7  # of the largest video that the engine plans with
_PLANNED_PAIRS: Final = 8  # of a video of square frames that it plans with


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePairs(MergedFrames):
    """Resizes a video's frames as Qwen-VL does, and counts the tokens of each pair of frames.

    Attributes:
        min_pixels: the smallest area of a frame after the resize, in pixels.
        max_pixels: the largest area of a frame after the resize, in pixels.
        assumed_fps: the frames a second that the processor takes every video to have; None: those
            that the engine decodes.
        resize: whether frames are resized.
        temporal_patch_size: the number of frames of a token.
        samples_again: whether the processor chooses among the frames that the engine decodes.
        caps_frames: whether the area of a frame depends on how many there are.
        fixed_merge: the number of patches along one side of a token that the engine counts with,
            where the processor may have another; None: the processor's.
        planned_side: the side in pixels of the square frames that the engine plans its encoder
            cache with; None: frames of the size of the largest image.
    """

    min_pixels: int
    max_pixels: int
    assumed_fps: float | None = None
    resize: bool = True
    temporal_patch_size: int = _PAIR
    samples_again: Literal[False] = False
    caps_frames: Literal[False] = False
    fixed_merge: int | None = None
    planned_side: int | None = None

    def max_embeds(self, plan: CachePlan) -> int:
        """The engine plans with frames of the size of the largest image, or with squares.

        Source: vLLM ``model_executor/models/qwen2_vl.py`` (``get_max_video_tokens``),
        ``hyperclovax_vision_v2.py`` (``get_dummy_mm_data``).
        """
        if self.planned_side is not None:
            square = self._resized(self.planned_side, self.planned_side)
            return self._count(_PLANNED_PAIRS, *square).total
        pairs = plan.max_model_len // max(1, plan.largest_image)
        return min(_MOST_PAIRS, max(1, pairs)) * plan.largest_image

    def patches(self, video: VideoSize) -> tuple[int, int, int]:
        """Pairs of frames, rows and columns of patches."""
        pairs, rows, columns = self._tokens(video)
        return pairs, rows * self.merge_size, columns * self.merge_size

    def seconds_per_pair(self, video: VideoSize) -> float:
        """The seconds from one pair of frames to the next."""
        frames = self.frames(video)
        fps = self.assumed_fps or len(frames.indices) / frames.total * frames.fps
        return self.temporal_patch_size / fps

    def count(self, video: VideoSize) -> Count:
        return self._count(*self._tokens(video))

    def _count(self, pairs: int, rows: int, columns: int) -> Count:
        merge = self.fixed_merge or self.merge_size
        if merge == self.merge_size:
            return Count(pairs, 1, rows * columns)
        return Count(whole=pairs * rows * columns * self.merge_size**2 // merge**2)

    def _tokens(self, video: VideoSize) -> tuple[int, int, int]:
        pairs = -(-len(self.frames(video).indices) // self.temporal_patch_size)
        return pairs, *self._resized(video.height, video.width)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens of a frame."""
        if not self.resize:
            return unresized(ImageSize(width, height), self.factor)
        check_aspect(height, width)
        return smart_resize(
            height,
            width,
            factor=self.factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
