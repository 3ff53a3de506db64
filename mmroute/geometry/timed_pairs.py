"""Qwen3-VL and GLM-4.xV: pairs of frames, each with its time as text.

Sources: transformers 5.20.2 ``models/qwen3_vl/video_processing_qwen3_vl.py``,
``models/glm4v/video_processing_glm4v.py``, vLLM 0.33.0 ``model_executor/models/qwen3_vl.py`` and
``glm4_1v.py``. Checked with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry.frame_sampling import (
    DEFAULT,
    Frames,
    Sampler,
    Sampling,
    item_refused,
    sample,
    sampling_of,
)
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import positive_count, read_scoped_kwargs, refused
from mmroute.geometry.replacement import Overrides, Replacement, RequestContext
from mmroute.geometry.smart_resize import enlarge_to_factor, pixel_limits, smart_resize
from mmroute.items import VideoSize

__all__ = ["TimedPairs", "resize_frames"]

_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class TimedPairs:
    """Builds the replacement of a video from pairs of frames.

    Attributes:
        fill: the token of a feature position, as a text of one token.
        opening: token IDs before all pairs.
        before: token IDs before the features of a pair.
        after: token IDs behind them.
        closing: token IDs behind all pairs.
        time: a template of the seconds at which a pair stands.
        time_is: which seconds these are: the mean of both frames', or the whole ones of the first.
        time_first: whether they come before the pair.
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        min_pixels: smallest volume after the resize, in pixels of all frames.
        max_pixels: largest volume.
        sampler: which frames are decoded.
        fps: frames a second that the processor takes of those, if all were decoded.
        min_frames: the fewest that it takes.
        max_frames: the most.
        num_frames: how many it takes instead, if a request says so.
        sampling: what the request asks of the sampler.
    """

    fill: tuple[int]
    opening: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    closing: tuple[int, ...]
    time: str
    time_is: Literal["mean", "whole"]
    time_first: bool
    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    sampler: Sampler
    fps: float = 2
    min_frames: int = 4
    max_frames: int = 768
    num_frames: int | None = None
    sampling: Sampling = DEFAULT

    @property
    def max_embeds(self) -> int:
        return self.max_pixels // _PAIR // (self.patch_size * self.merge_size) ** 2

    def with_overrides(self, overrides: Overrides) -> TimedPairs:
        """Limits of the volume, and which frames are taken."""
        names = ["size"]
        if self._samples_again:
            names += ["min_pixels", "max_pixels", "fps", "num_frames"]
        scoped = overrides.processor.get("videos_kwargs") or {}
        given = read_scoped_kwargs(
            overrides.processor, "videos_kwargs", *names, *(_LIMITS & scoped.keys())
        )
        lowest, highest = pixel_limits(
            given,
            {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
            keeps_partial_size=True,
        )
        fps, num_frames = self._asked(given)
        return replace(
            self,
            min_pixels=lowest,
            max_pixels=highest,
            fps=fps,
            num_frames=num_frames,
            sampling=sampling_of(self.sampler, overrides.media_io),
        )

    @property
    def _samples_again(self) -> bool:
        return self.sampler is Sampler.QWEN3_VL

    def _asked(self, given: Mapping[str, Any]) -> tuple[float, int | None]:
        fps = given.get("fps", self.fps)
        if type(fps) not in (int, float) or not fps > 0:
            raise refused("fps", fps, "a positive number")
        if "num_frames" not in given:
            return fps, None
        if "fps" in given:
            raise refused("num_frames", given["num_frames"], "absent beside fps")
        return fps, positive_count(given, "num_frames", 0)

    def frames(self, video: VideoSize) -> Frames:
        return sample(self.sampler, video, self.sampling)

    def replacements(
        self, items: Sequence[VideoSize], context: RequestContext
    ) -> Iterator[Replacement]:
        return (self._replacement(video, context) for video in items)

    def _replacement(self, video: VideoSize, context: RequestContext) -> Replacement:
        frames = self.frames(video)
        times = self._times(video, frames)
        if len(times) < _PAIR:
            raise item_refused(video, "it takes two frames or more")
        factor = self.patch_size * self.merge_size
        height, width = resize_frames(
            len(times),
            video.height,
            video.width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        count = (height // factor) * (width // factor)
        if len(times) % _PAIR:
            times.append(times[-1])
        runs = []
        for first, second in zip(times[::_PAIR], times[1::_PAIR], strict=True):
            seconds = (first + second) / _PAIR if self.time_is == "mean" else int(first)
            text = context.encode(self.time.format(seconds=seconds))
            before, after = (text, ()) if self.time_first else ((), text)
            runs.append(FramedRun([*before, *self.before], count, [*self.after, *after]))
        return framed_runs(self.fill[0], runs, opening=self.opening, closing=self.closing)

    def _times(self, video: VideoSize, frames: Frames) -> list[float]:
        """Seconds at which the frames stand that the processor takes."""
        if not frames.sampled_again:
            return frames.times
        if not self._samples_again:
            if self.sampling.fps is not None:
                raise InexactError(
                    Reason.UNSUPPORTED_PROCESSOR_KWARGS,
                    f"media_io_kwargs.video.fps with {video}, all of which are taken: the engine "
                    "and the processor then choose different ones",
                )
            return frames.times
        total = frames.total
        if self.num_frames is None:
            wanted = int(total / frames.fps * self.fps)
            count = min(max(wanted, self.min_frames), self.max_frames, total)
        elif self.min_frames <= self.num_frames <= min(self.max_frames, total):
            count = self.num_frames
        else:
            raise refused("num_frames", self.num_frames, f"{self.min_frames} to {total} here")
        chosen = np.linspace(0, total - 1, count).round().astype(int).tolist()
        return [index / frames.fps for index in chosen]


_LIMITS: Final = frozenset({"min_pixels", "max_pixels"})


def resize_frames(
    frames: int, height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Height and width of all frames after the resize, in pixels.

    Raises:
        InexactError: `image_refused` if one side is more than 200 times the other.
    """
    return smart_resize(
        *enlarge_to_factor(height, width, factor),
        factor=factor,
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        frames=frames,
        counted_frames=round(frames / _PAIR) * _PAIR,
    )
