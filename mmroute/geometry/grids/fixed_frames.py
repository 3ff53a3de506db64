"""Videos each frame of which has the same number of tokens, whatever its size: LLaVA, InternVL.

Sources: vLLM 0.33.0 ``model_executor/models/llava_onevision.py``, ``llava_next_video.py``,
``interns1.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.geometry.grid import CachePlan, Count, SampledVideos
from mmroute.requests.items import VideoSize


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFrames(SampledVideos):
    """InternVL: a constant for each frame.

    Attributes:
        tokens_per_frame: feature positions of a frame.
    """

    tokens_per_frame: int

    def max_embeds(self, plan: CachePlan) -> int:
        """As many frames as the context holds beside an image."""
        frames = plan.beside_an_image // self.tokens_per_frame
        return max(1, frames) * self.tokens_per_frame

    def count(self, video: VideoSize) -> Count:
        return Count(len(self.frames(video).indices), 1, self.tokens_per_frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledFrames(SampledVideos):
    """LLaVA: the pooled patches of each frame.

    Attributes:
        image_size: pixels along one side of a frame as the vision tower gets it.
        patch_size: pixels along one side of a patch.
        stride: patches along one side that are pooled; the last may be fewer.
        newline: whether one token more follows all frames.
        planned_frames: the most that the engine plans its encoder cache with; None: all that the
            context holds.
    """

    image_size: int
    patch_size: int
    stride: int
    newline: bool
    planned_frames: int | None = None

    def max_embeds(self, plan: CachePlan) -> int:
        """As many frames as the context holds, or as the engine plans with."""
        frames = (plan.max_model_len - self.newline) // self._tokens_per_frame()
        planned = max(1, min(frames, self.planned_frames or frames))
        return planned * self._tokens_per_frame() + self.newline

    def count(self, video: VideoSize) -> Count:
        frames = len(self.frames(video).indices)
        return Count(frames, 1, self._tokens_per_frame(), whole=int(self.newline))

    def _tokens_per_frame(self) -> int:
        side = -(-(self.image_size // self.patch_size) // self.stride)
        return side * side
