"""Videos whose frames have tokens of their own: LLaVA and InternVL.

Sources: vLLM 0.33.0 ``model_executor/models/llava_onevision.py``, ``llava_next_video.py``,
``interns1.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.errors import InexactError, Reason
from mmroute.geometry.replacement import CachePlan, ModelContext, Replacement, fill, repeated
from mmroute.geometry.sampled_videos import SampledVideos
from mmroute.requests.items import VideoSize


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledFrames(SampledVideos):
    """A fixed number of tokens for each frame, whatever its size.

    Attributes:
        video_token_id: the fill.
        image_size: pixels along one side of a frame as the vision tower gets it.
        patch_size: pixels along one side of a patch.
        stride: patches along one side that are pooled; the last may be fewer.
        newline: whether one token more follows all frames.
        planned_frames: the most that the engine plans its encoder cache with; None: all that the
            context holds.
    """

    video_token_id: int
    image_size: int
    patch_size: int
    stride: int
    newline: bool
    planned_frames: int | None = None

    def max_embeds(self, plan: CachePlan) -> int:
        """As many frames as the context holds, or as the engine plans with."""
        frames = (plan.max_model_len - self.newline) // (self._count(1) - self.newline)
        return self._count(max(1, min(frames, self.planned_frames or frames)))

    def replacement(self, video: VideoSize, context: ModelContext) -> Replacement:
        return fill(self.video_token_id, self._count(len(self.frames(video).indices)))

    def _count(self, frames: int) -> int:
        side = -(-(self.image_size // self.patch_size) // self.stride)
        return frames * side * side + self.newline


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedFrames(SampledVideos):
    """InternVL: each frame with its number before it, all encoded as one text.

    Attributes:
        frame: a template of the text before a frame's features.
        fill: the text of a feature position.
        end: the text behind a frame's features.
        separator: the text between two frames.
        tokens_per_frame: feature positions of a frame.
    """

    frame: str
    fill: str
    end: str
    separator: str
    tokens_per_frame: int

    def max_embeds(self, plan: CachePlan) -> int:
        """As many frames as the context holds beside an image."""
        frames = plan.beside_an_image // self.tokens_per_frame
        return max(1, frames) * self.tokens_per_frame

    def replacement(self, video: VideoSize, context: ModelContext) -> Replacement:
        frames = len(self.frames(video).indices)
        texts = [self.frame.format(number=n + 1) + self.fill + self.end for n in range(frames)]
        fill_ids = context.encode(self.fill).tolist()
        if len(fill_ids) != 1:
            raise InexactError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{self.fill!r} must be one token, but the tokenizer makes {fill_ids} of it",
            )
        counts = [self.tokens_per_frame] * frames
        return repeated(context.encode(self.separator.join(texts)), fill_ids[0], counts)
