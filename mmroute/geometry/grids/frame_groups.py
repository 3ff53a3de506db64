"""Groups of frames, most of two: Qwen-VL and GLM-V.

Sources: transformers ``models/qwen2_vl/video_processing_qwen2_vl.py``,
``models/qwen3_vl/video_processing_qwen3_vl.py``, ``models/glm4v/video_processing_glm4v.py``, vLLM
``model_executor/models/qwen2_vl.py`` (``get_max_video_tokens``), ``hyperclovax_vision_v2.py``
(``get_dummy_mm_data``), ``qwen3_vl.py`` and ``glm4_1v.py``. Checked with both.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from mmroute.errors import InexactError, Reason, argument_refused, item_refused
from mmroute.geometry.frame_sampling import Frames
from mmroute.geometry.grid import CachePlan, Count, MergedFrames
from mmroute.geometry.grids.smart_resize import (
    ShortSides,
    largest_rectangle,
    resized,
    unresized,
)
from mmroute.requests.items import ImageSize, VideoSize

_PAIR: Final = 2
_MOST_PAIRS: Final = 7  # of the largest video that the engine plans with
_PLANNED_SQUARES: Final = 8  # pairs of a video of square frames that it plans with
# vLLM ``glm4_1v.py``; the area is the default of its ``smart_resize``.
_PLANNED_FRAMES: Final = 600
_PLANNED_PAIRS: Final = 320
_LONGEST_SECONDS: Final = 300
_SAMPLED_FPS: Final = 2
_AROUND: Final = 2  # begin and end of a pair, and of the video
_PLANNED_MIN_PIXELS: Final = 112 * 112


Groups: TypeAlias = tuple[int, int, int, tuple[float, ...] | None]
"""The number of groups, rows and columns of tokens of each, and their times; None: no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameGroups(MergedFrames):
    """Counts the tokens of each group of frames."""

    temporal_patch_size: int = _PAIR
    fixed_merge: int | None = None

    @abstractmethod
    def groups(self, video: VideoSize) -> Groups:
        """The groups of frames that are counted."""

    def patches(self, video: VideoSize) -> tuple[int, int, int]:
        groups, rows, columns, _ = self.groups(video)
        return groups, rows * self.merge_size, columns * self.merge_size

    def count(self, video: VideoSize) -> Count:
        return self.counted(self.groups(video))

    def counted(self, of: Groups) -> Count:
        """The tokens of groups. Those with times are written one by one, each with whole tokens."""
        number, rows, columns, times = of
        patches = rows * columns * self.merge_size**2
        merged = (self.fixed_merge or self.merge_size) ** 2
        if times is not None:
            return Count(number, 1, patches // merged, 0, times)
        return Count(0, 0, 1, number * patches // merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedFrames(FrameGroups):
    """Resizes a video's frames as images are."""

    min_pixels: int
    max_pixels: int
    short_sides: ShortSides = "kept"
    least_rounded: int = 0
    least_shrunk: int = 1

    def groups(self, video: VideoSize) -> Groups:
        groups = -(-len(self.frames(video).indices) // self.temporal_patch_size)
        return groups, *self._frame(video.height, video.width), None

    def _frame(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens of a frame."""
        return resized(height, width, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePairs(ResizedFrames):
    """Resizes a video's frames as Qwen-VL does, and counts the tokens of each pair of frames."""

    assumed_fps: float | None = None
    resize: bool = True
    samples_again: Literal[False] = False
    caps_frames: Literal[False] = False
    planned_side: int | None = None

    def largest_item(self, plan: CachePlan) -> int:
        """Pairs of frames of the size of the largest image, or squares."""
        if self.planned_side is not None:
            square = self._frame(self.planned_side, self.planned_side)
            return self.counted((_PLANNED_SQUARES, *square, None)).total
        pairs = plan.max_model_len // max(1, plan.largest_image)
        return min(_MOST_PAIRS, max(1, pairs)) * plan.largest_image

    def seconds_per_pair(self, video: VideoSize) -> float:
        frames = self.frames(video)
        fps = self.assumed_fps or len(frames.indices) / frames.total * frames.fps
        return self.temporal_patch_size / fps

    def _frame(self, height: int, width: int) -> tuple[int, int]:
        if not self.resize:
            return unresized(ImageSize(width, height), self.factor)
        return resized(height, width, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedVideo(ResizedFrames):
    """Resizes a video within one limit for all its pixels, and gives each group its time."""

    short_sides: ShortSides = "enlarged"
    time_is: Literal["mean", "whole"]
    caps_frames: Literal[False] = False
    fps: float = 2
    min_frames: int = 4
    max_frames: int = 768
    max_duration: float = _LONGEST_SECONDS
    own_num_frames: int = 0
    num_frames: int | None = None
    planned_by_context: bool = False
    planned_pixels: int | None = None

    def largest_item(self, plan: CachePlan) -> int:
        most = self.planned_pixels or self.max_pixels
        if self.planned_by_context:
            planned = replace(self, min_pixels=_PLANNED_MIN_PIXELS, max_pixels=most)
            side = math.isqrt(plan.largest_image) * self.factor
            counts = [planned.of_squares(frames, side) for frames in range(1, _PLANNED_FRAMES + 1)]
            return max((n for n in counts if n <= plan.beside_an_image), default=counts[0])
        most = most // self.temporal_patch_size // self.factor**2
        if self.time_is == "mean":
            return math.prod(largest_rectangle(most))
        times = (f"{seconds:.1f} seconds" for seconds in range(_LONGEST_SECONDS))
        longest = max(len(plan.encode(time)) for time in times)
        return most + _PLANNED_PAIRS * (longest + _AROUND) + _AROUND

    def of_squares(self, frames: int, side: int) -> int:
        """Features of as many square frames, of which one counts as two."""
        groups = -(-frames // _PAIR)
        frames = max(_PAIR, frames)
        even = round(frames / _PAIR) * _PAIR
        return groups * math.prod(resized(side, side, self, frames=frames, counted=even))

    def groups(self, video: VideoSize) -> Groups:
        times = self._times(video, self.frames(video))
        size = self.temporal_patch_size
        if len(times) < size:
            raise item_refused(video, f"it takes {size} frames or more")
        counted = round(len(times) / size) * size
        tokens = resized(video.height, video.width, self, frames=len(times), counted=counted)
        times += times[-1:] * (-len(times) % size)
        firsts, lasts = times[::size], times[size - 1 :: size]
        groups: tuple[float, ...] = tuple(map(int, firsts))
        if self.time_is == "mean":
            groups = tuple((a + b) / 2 for a, b in zip(firsts, lasts, strict=True))
        return len(groups), *tokens, groups

    def _times(self, video: VideoSize, frames: Frames) -> list[float]:
        """Seconds at which the frames stand that the processor takes."""
        if not frames.fps > 0:
            raise item_refused(video, "its frame rate is unknown")
        if not frames.sampled_again:
            return frames.times
        if self.time_is == "whole":  # the processor takes them all
            if (self.fps, self.max_duration) != (_SAMPLED_FPS, _LONGEST_SECONDS):
                raise InexactError(
                    Reason.VIDEO_NOT_PREDICTABLE,
                    f"{video}: all frames are decoded, and the file of its processor has another "
                    "fps or max_duration than the engine",
                )
            if self.sampling.fps is not None:
                raise InexactError(
                    Reason.UNSUPPORTED_PROCESSOR_KWARGS,
                    f"media_io_kwargs.video.fps is not covered with {video}, because all frames "
                    "are decoded: the engine and the processor then choose different ones",
                )
            # The processor repeats the last frame of an odd number before it resizes them.
            return frames.times + frames.times[-1:] * (len(frames.indices) % _PAIR)
        total = frames.total
        if self.num_frames is None:
            if self.own_num_frames or min(self.fps, self.min_frames, self.max_frames) < 0:
                raise item_refused(video, "the file of its processor says not how to sample it")
            wanted = int(total / frames.fps * self.fps)
            count = min(max(wanted, self.min_frames), self.max_frames, total)
        elif self.min_frames <= self.num_frames <= min(self.max_frames, total):
            count = self.num_frames
        else:
            least_to_most = f"{self.min_frames} to {total} for {video}"
            raise argument_refused("mm_processor_kwargs.num_frames", self.num_frames, least_to_most)
        chosen = np.linspace(0, total - 1, count).round().astype(int).tolist()
        return [index / frames.fps for index in chosen]
