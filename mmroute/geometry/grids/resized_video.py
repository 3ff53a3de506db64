"""Qwen3-VL and GLM-4.xV: groups of frames, resized within one limit of all their pixels.

Sources: transformers ``models/qwen3_vl/video_processing_qwen3_vl.py``,
``models/glm4v/video_processing_glm4v.py``, vLLM ``model_executor/models/qwen3_vl.py`` and
``glm4_1v.py``. Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from mmroute.errors import InexactError, Reason, argument_refused, item_refused
from mmroute.geometry.frame_sampling import Frames
from mmroute.geometry.grid import CachePlan, Count, MergedFrames
from mmroute.geometry.grids.smart_resize import (
    enlarge_to_factor,
    largest_rectangle,
    smart_resize,
)
from mmroute.requests.items import VideoSize

_PAIR: Final = 2
# vLLM ``glm4_1v.py``; the area is the default of its ``smart_resize``.
_PLANNED_FRAMES: Final = 600
_PLANNED_PAIRS: Final = 320
_LONGEST_SECONDS: Final = 300
_SAMPLED_FPS: Final = 2
_AROUND: Final = 2  # begin and end of a pair, and of the video
_PLANNED_MIN_PIXELS: Final = 112 * 112


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedVideo(MergedFrames):
    """Resizes a video within one limit for all its pixels, and counts each group of frames.

    Attributes:
        time_is: the time of a group: the mean of its first and last frame's, or the whole seconds
            of the first. With the latter, the processor takes all frames that were decoded.
        min_pixels: the smallest volume after the resize, in pixels of all frames.
        max_pixels: the largest volume, likewise.
        temporal_patch_size: the number of frames of a token.
        fixed_merge: the number of patches along one side of a token that the engine counts with,
            where the processor may have another; None: the processor's.
        caps_frames: whether the area of a frame depends on how many there are.
        fps: the number of frames a second that the processor takes, if all frames were decoded.
            Below 0: it has none, and fails on such videos. So it is of the next two.
        min_frames: the fewest frames that the processor takes.
        max_frames: the most frames that the processor takes.
        max_duration: the length in seconds up to which the processor takes frames at `fps`.
        own_num_frames: the processor's own number of frames, if that is not 0: with it and `fps`,
            it fails on videos of which all frames were decoded.
        num_frames: the number of frames that a request asks for, in place of `fps`.
        planned_by_context: whether the engine plans its encoder cache with the frames that fill
            the context best beside an image; otherwise with the largest volume.
        planned_pixels: the largest volume in the plan; None: `max_pixels`.
    """

    time_is: Literal["mean", "whole"]
    min_pixels: int
    max_pixels: int
    temporal_patch_size: int = _PAIR
    fixed_merge: int | None = None
    caps_frames: Literal[False] = False
    fps: float = 2
    min_frames: int = 4
    max_frames: int = 768
    max_duration: float = _LONGEST_SECONDS
    own_num_frames: int = 0
    num_frames: int | None = None
    planned_by_context: bool = False
    planned_pixels: int | None = None

    def max_embeds(self, plan: CachePlan) -> int:
        if not self.planned_by_context:
            most = self.planned_pixels or self.max_pixels
            most = most // self.temporal_patch_size // self.factor**2
            if self.time_is == "mean":
                return math.prod(largest_rectangle(most))
            times = (f"{seconds:.1f} seconds" for seconds in range(_LONGEST_SECONDS))
            longest = max(len(plan.encode(time)) for time in times)
            return most + _PLANNED_PAIRS * (longest + _AROUND) + _AROUND
        best = most = 0
        for frames in range(1, _PLANNED_FRAMES + 1):
            count = self._planned(frames, plan.largest_image)
            if most < count <= plan.beside_an_image:
                best, most = frames, count
        return self._planned(max(_PAIR, best), plan.largest_image)

    def _planned(self, frames: int, largest_image: int) -> int:
        """Features of as many frames of the size of the largest image, a square."""
        factor = self.factor
        side = math.isqrt(largest_image) * factor
        rows, columns = smart_resize(
            side,
            side,
            factor=factor,
            min_pixels=_PLANNED_MIN_PIXELS,
            max_pixels=self.planned_pixels or self.max_pixels,
            frames=max(_PAIR, frames),
            counted_frames=round(max(_PAIR, frames) / _PAIR) * _PAIR,
        )
        return -(-frames // _PAIR) * rows * columns

    def patches(self, video: VideoSize) -> tuple[int, int, int]:
        """Groups of frames, rows and columns of patches."""
        groups, rows, columns = self._tokens(video)
        return len(groups), rows * self.merge_size, columns * self.merge_size

    def count(self, video: VideoSize) -> Count:
        groups, rows, columns = self._tokens(video)
        merged = rows * columns * self.merge_size**2 // (self.fixed_merge or self.merge_size) ** 2
        return Count(len(groups), 1, merged, times=groups)

    def _tokens(self, video: VideoSize) -> tuple[tuple[float, ...], int, int]:
        """Seconds of the groups of frames, rows and columns of tokens of each."""
        frames = self.frames(video)
        times = self._times(video, frames)
        size = self.temporal_patch_size
        if len(times) < size:
            raise item_refused(video, f"it takes {size} frames or more")
        factor = self.factor
        height, width = enlarge_to_factor(video.height, video.width, factor)
        rows, columns = smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            frames=len(times),
            counted_frames=round(len(times) / size) * size,
        )
        times += times[-1:] * (-len(times) % size)
        firsts, lasts = times[::size], times[size - 1 :: size]
        groups: tuple[float, ...] = tuple(map(int, firsts))
        if self.time_is == "mean":
            groups = tuple((a + b) / 2 for a, b in zip(firsts, lasts, strict=True))
        return groups, rows, columns

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
