"""Pairs of frames of which the model's processor has all of a file."""

from __future__ import annotations

import pytest

from mmroute.errors import InexactError, Reason
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grids.frame_groups import ResizedVideo
from mmroute.requests.items import VideoSize

GLM = ResizedVideo(
    time_is="whole", patch_size=14, merge_size=2, min_pixels=12544, max_pixels=9633792,
    sampler=Sampler.OPENCV_DYNAMIC,
)  # fmt: skip


@pytest.mark.parametrize(("frames", "tokens"), [(3, 2 * 6), (4, 2 * 6)])
def test_an_odd_number_of_frames_is_made_even_before_the_resize(frames: int, tokens: int) -> None:
    """vLLM 0.33.0's answers for GLM-4.1V."""
    assert GLM.count(VideoSize(64, 32, frames, 1.0)).total == tokens


@pytest.mark.parametrize("height", [1, 3])
def test_a_height_that_is_taken_for_channels_is_refused(height: int) -> None:
    """vLLM 0.33.0 gives Qwen3-VL 46 tokens a pair for 137x1, as for 137x3; by its sides 137."""
    with pytest.raises(InexactError) as caught:
        GLM.count(VideoSize(137, height, 8, 1.0))
    assert caught.value.reason is Reason.VIDEO_NOT_PREDICTABLE
    assert GLM.count(VideoSize(height, 137, 8, 1.0)).total
