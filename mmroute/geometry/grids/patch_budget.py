"""Gemma 4: an image is scaled to a budget of soft tokens, both sides to multiples of a unit.

The unit is one soft token: a square of pooled patches. Source: vLLM
``model_executor/models/gemma4_mm.py`` and ``gemma4_unified.py`` (`_compute_num_soft_tokens`).
transformers counts very thin images otherwise, but the engine's own count is the one that it
expands by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.geometry.grid import CachePlan, Count, OneByOne, SampledVideos
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize, VideoSize

_MOST_FRAMES: Final = 32  # that are sampled if the request does not say
_UNKNOWN_FPS: Final = 24
_AROUND: Final = 8  # begin, end and time of a frame, which the engine plans with its features


@dataclass(frozen=True, slots=True)
class PatchBudget(OneByOne[ImageSize]):
    """Resizes an image to a budget of soft tokens, and counts those that it has."""

    patch_size: int
    pooling_size: int
    max_soft_tokens: int

    def largest_item(self, _: CachePlan) -> int:
        return self.max_soft_tokens

    def count(self, image: ImageSize) -> Count:
        return Count(whole=soft_tokens(image, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedFrames(SampledVideos):
    """Resizes each frame of a video to a budget of soft tokens, and counts those that it has."""

    patch_size: int
    pooling_size: int
    max_soft_tokens: int

    def largest_item(self, _: CachePlan) -> int:
        return _MOST_FRAMES * (self.max_soft_tokens + _AROUND)

    def counts(self, items: Sequence[VideoSize], context: ModelContext) -> Iterable[Count]:
        """One count for each video; of one that is too long for any context without times."""
        return (self.count(video, context.max_model_len) for video in items)

    def count(self, video: VideoSize, most: int | None = None) -> Count:
        tokens = soft_tokens(video, self)
        frames = self.frames(video)
        if most is not None and len(frames.indices) * tokens >= most:
            return Count(len(frames.indices), 1, tokens)
        times = tuple(index / (frames.fps or _UNKNOWN_FPS) for index in frames.indices)
        return Count(len(times), 1, tokens, times=times)


def soft_tokens(item: ImageSize | VideoSize, grid: PatchBudget | BudgetedFrames) -> int:
    """The number of soft tokens of an image or a frame.

    >>> soft_tokens(ImageSize(1280, 720), PatchBudget(16, 3, 280))
    264
    """
    side, budget = grid.patch_size, grid.max_soft_tokens
    unit = side * grid.pooling_size
    patches = (item.height / side) * (item.width / side)
    scale = math.sqrt(budget * grid.pooling_size**2 / patches)
    rows = max(1, math.floor(item.height * scale / unit))
    columns = max(1, math.floor(item.width * scale / unit))
    return min(rows * columns, budget)
