"""Pairs of frames of which the model's processor has all of a file."""

from __future__ import annotations

import pytest

from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grids.resized_video import ResizedVideo
from mmroute.requests.items import VideoSize

GLM = ResizedVideo(
    time_is="whole", patch_size=14, merge_size=2, min_pixels=12544, max_pixels=9633792,
    sampler=Sampler.OPENCV_DYNAMIC,
)  # fmt: skip


@pytest.mark.parametrize(("frames", "tokens"), [(3, 2 * 6), (4, 2 * 6)])
def test_an_odd_number_of_frames_is_made_even_before_the_resize(frames: int, tokens: int) -> None:
    """vLLM 0.33.0's answers for GLM-4.1V."""
    assert GLM.count(VideoSize(64, 32, frames, 1.0)).total == tokens
