"""Videos of which the engine decodes some frames."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.frame_sampling import DEFAULT, Frames, Sampler, Sampling, sample, sampling_of
from mmroute.geometry.processor_kwargs import read_video_kwargs
from mmroute.geometry.replacement import Overrides
from mmroute.requests.items import VideoSize


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledVideos(OneByOne[VideoSize]):
    """Each video becomes one replacement, by the frames that are decoded of it.

    Attributes:
        sampler: which frames are decoded.
        sampling: what the request asks of the sampler.
    """

    sampler: Sampler
    sampling: Sampling = DEFAULT

    def with_overrides(self, overrides: Overrides) -> Self:
        """Which frames are decoded.

        Raises:
            InexactError: `unsupported_processor_kwargs` for any processor kwargs of videos.
        """
        read_video_kwargs(overrides.processor)
        return replace(self, sampling=sampling_of(self.sampler, overrides.media_io))

    def frames(self, video: VideoSize) -> Frames:
        """The frames of a video that the engine decodes.

        Raises:
            InexactError: `item_refused` if it decodes none; `video_not_predictable`.
        """
        return sample(self.sampler, video, self.sampling)
