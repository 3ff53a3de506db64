"""Qwen2-VL, Qwen2.5-VL and Qwen-Omni: pairs of frames, each resized as an image is.

Sources: transformers 5.20.2 ``models/qwen2_vl/video_processing_qwen2_vl.py``, vLLM 0.33.0
``model_executor/models/qwen2_vl.py``. Checked with both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from mmroute.geometry.frame_sampling import sampling_of
from mmroute.geometry.known_kwargs import is_positive
from mmroute.geometry.processor_kwargs import positive_count, read_video_kwargs, refused
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement, fill
from mmroute.geometry.sampled_videos import SampledVideos
from mmroute.geometry.smart_resize import check_aspect, pixel_limits, smart_resize
from mmroute.requests.items import VideoSize

_MOST_PAIRS: Final = 7  # of the largest video that the engine plans with


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoResize(SampledVideos):
    """Counts the tokens of pairs of frames after a smart resize.

    Attributes:
        video_token_id: the fill.
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        min_pixels: smallest area of a frame after the resize, in pixels.
        max_pixels: largest area.
        reaches_images: whether flat pixel limits of a request mix those of videos into images.
    """

    video_token_id: int
    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    reaches_images: bool = False

    def max_embeds(self, plan: CachePlan) -> int:
        """The engine plans with frames of the size of the largest image."""
        return plan.pairs_like_images(_MOST_PAIRS)

    def with_overrides(self, overrides: Overrides) -> Self:
        """Limits of the area, and which frames are decoded."""
        if self.reaches_images and "max_pixels" in overrides.processor:
            wanted = "inside images_kwargs or videos_kwargs, where the request has videos"
            raise refused("max_pixels", overrides.processor["max_pixels"], wanted)
        given = read_video_kwargs(
            overrides.processor, "min_pixels", "max_pixels", "size", "fps", "num_frames"
        )
        positive_count(given, "num_frames", 1)
        if not is_positive(given.get("fps", 1)):
            raise refused("fps", given["fps"], "a positive number")
        lowest, highest = pixel_limits(
            given, self.min_pixels, self.max_pixels, keeps_partial_size=False
        )
        return replace(
            self,
            min_pixels=lowest,
            max_pixels=highest,
            sampling=sampling_of(self.sampler, overrides.media_io),
        )

    def replacement(self, video: VideoSize, context: ModelContext) -> Replacement:
        factor = self.patch_size * self.merge_size
        pairs = -(-len(self.frames(video).indices) // 2)
        check_aspect(video.height, video.width)
        rows, columns = smart_resize(
            video.height,
            video.width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        return fill(self.video_token_id, pairs * rows * columns)
