"""Videos each frame of which has the same number of tokens, whatever its size: LLaVA, InternVL.

Sources: vLLM ``model_executor/models/llava_onevision.py``, ``llava_next_video.py``,
``interns1.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.errors import item_refused
from mmroute.geometry.grid import CachePlan, Count, SampledVideos
from mmroute.geometry.grids.slices import scaled
from mmroute.requests.items import VideoSize


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFrames(SampledVideos):
    """Counts the same number of tokens for each frame of a video."""

    tokens_per_frame: int | None = None
    image_size: int = 0
    patch_size: int = 1
    slice_size: int = 0
    stride: int = 1
    newline: bool = False
    beside_an_image: bool = False
    planned_frames: int | None = None
    refused_heights: tuple[int, ...] = ()

    def largest_item(self, plan: CachePlan) -> int:
        room = plan.beside_an_image if self.beside_an_image else plan.max_model_len
        frames = (room - self.newline) // self._tokens()
        planned = max(1, min(frames, self.planned_frames or frames))
        return planned * self._tokens() + self.newline

    def count(self, video: VideoSize) -> Count:
        if video.height in self.refused_heights:
            raise item_refused(video, "its processor takes the height for a number of channels")
        return Count(len(self.frames(video).indices), 1, self._tokens(), int(self.newline))

    def parts(self, video: VideoSize) -> list[tuple[int, int]]:
        size = self.slice_size, self.patch_size
        frame = scaled(video.height, video.width, *size, 1, enlarge=True)
        return [frame] * len(self.frames(video).indices)

    def _tokens(self) -> int:
        if self.tokens_per_frame is not None:
            return self.tokens_per_frame
        side = -(-(self.image_size // self.patch_size) // self.stride)
        return side * side
