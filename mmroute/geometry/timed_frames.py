"""Gemma 4: single frames, each with its time as text.

Source: vLLM 0.33.0 ``model_executor/models/gemma4_mm.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from mmroute.geometry.frame_sampling import sampling_of
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.patch_budget import BUDGETS, soft_tokens
from mmroute.geometry.processor_kwargs import positive_count, read_video_kwargs, refused
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.geometry.sampled_videos import SampledVideos
from mmroute.requests.items import VideoSize

_MOST_FRAMES: Final = 32  # that are sampled if the request does not say
_UNKNOWN_FPS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFrames(SampledVideos):
    """Builds the replacement of a video from its frames.

    Two frames (f: the features of one) are ``first_time before f after next_time before f after``.

    Attributes:
        fill: the token of a feature position, as a text of one token.
        before: token IDs before the features of a frame.
        after: token IDs behind them.
        first_time: a template of the minutes and seconds at which the first frame stands.
        next_time: a template of those of all others.
        patch_size: pixels along one side of a patch.
        pooling_size: patches along one side of a token.
        max_soft_tokens: the budget of a frame.
    """

    fill: tuple[int]
    before: tuple[int, ...]
    after: tuple[int, ...]
    first_time: str
    next_time: str
    patch_size: int
    pooling_size: int
    max_soft_tokens: int

    def max_embeds(self, _: CachePlan) -> int:
        return _MOST_FRAMES * self.max_soft_tokens

    def with_overrides(self, overrides: Overrides) -> Self:
        """Which frames are decoded. The budget does not change."""
        given = read_video_kwargs(overrides.processor, "max_soft_tokens")
        positive_count(given, "max_soft_tokens", self.max_soft_tokens)
        flat = overrides.processor.get("max_soft_tokens", BUDGETS[0])
        if type(flat) is not int or flat not in BUDGETS:
            raise refused("max_soft_tokens", flat, f"one of {', '.join(map(str, BUDGETS))}")
        return replace(self, sampling=sampling_of(self.sampler, overrides.media_io))

    def replacement(self, video: VideoSize, context: ModelContext) -> Replacement:
        count = soft_tokens(
            video.height,
            video.width,
            patch_size=self.patch_size,
            pooling_size=self.pooling_size,
            budget=self.max_soft_tokens,
        )
        frames = self.frames(video)
        runs: list[FramedRun] = []
        for index in frames.indices:
            seconds = index / (frames.fps or _UNKNOWN_FPS)
            template = self.next_time if runs else self.first_time
            text = template.format(minutes=int(seconds // 60), seconds=int(seconds % 60))
            runs.append(FramedRun([*context.encode(text), *self.before], count, self.after))
        return framed_runs(self.fill[0], runs)
