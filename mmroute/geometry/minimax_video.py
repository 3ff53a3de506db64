"""MiniMax-M3: pairs of frames between a start and an end token.

With its processor cache on, which is the default, the engine loses the times of frames on the way
to the processor, and writes none. Source: vLLM 0.33.0 ``models/minimax_m3/common/mm_preprocess.py``
and ``transformers_utils/processors/minimax_m3.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mmroute.errors import InexactError, Reason, item_refused
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.minimax_resize import grid_by_area
from mmroute.geometry.replacement import CachePlan, ModelContext, Replacement
from mmroute.geometry.sampled_videos import SampledVideos
from mmroute.requests.items import VideoSize

_MOST_PAIRS: Final = 250  # of the largest video that the engine plans with


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniMaxVideo(SampledVideos):
    """Builds the replacement of a video from pairs of frames.

    Attributes:
        fill: the token of a feature position, as a text of one token.
        before: token IDs before the features of a pair.
        after: token IDs behind them.
        time: a template of the seconds at which the first frame of a pair stands.
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        max_pixels: largest area of a frame after the resize, in pixels.
        max_long_side: longest side after the resize, which was not observed.
    """

    fill: tuple[int]
    before: tuple[int, ...]
    after: tuple[int, ...]
    time: str
    patch_size: int
    merge_size: int
    max_pixels: int
    max_long_side: int | None = None

    def max_embeds(self, plan: CachePlan) -> int:
        """The engine plans with frames of the size of the largest image."""
        return plan.pairs_like_images(_MOST_PAIRS)

    def replacement(self, video: VideoSize, context: ModelContext) -> Replacement:
        if self.max_long_side is not None:
            raise InexactError(
                Reason.VIDEO_NOT_PREDICTABLE,
                "max_long_side_pixel is set, whose effect on videos was not observed",
            )
        factor = self.patch_size * self.merge_size
        rows, columns = grid_by_area(
            video.height, video.width, factor=factor, max_pixels=self.max_pixels
        )
        runs = []
        frames = self.frames(video)
        if context.processor_cache_off and not frames.fps > 0:
            raise item_refused(video, "its frame rate is unknown")
        for index in frames.indices[::2]:
            before = self.before
            if context.processor_cache_off:
                time = self.time.format(seconds=index / frames.fps)
                before = (*context.encode(time).tolist(), *before)
            runs.append(FramedRun(before, rows * columns, self.after))
        return framed_runs(self.fill[0], runs)
