"""Pairs of frames of which the model's processor has all of a file."""

from __future__ import annotations

import numpy as np
import pytest

from mmroute.geometry import ModelContext, TokenIds
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.timed_pairs import TimedPairs
from mmroute.requests.items import VideoSize

GLM = TimedPairs(
    fill=(1,), opening=(), before=(), after=(), closing=(), time="{seconds}", time_is="whole",
    time_first=False, patch_size=14, merge_size=2, min_pixels=12544, max_pixels=9633792,
    sampler=Sampler.OPENCV_DYNAMIC,
)  # fmt: skip


def _nothing(_: str) -> TokenIds:
    return np.zeros(0, dtype=np.uint32)


@pytest.mark.parametrize(("frames", "tokens"), [(3, 2 * 6), (4, 2 * 6)])
def test_an_odd_number_of_frames_is_made_even_before_the_resize(frames: int, tokens: int) -> None:
    """vLLM 0.33.0's answers for GLM-4.1V."""
    context = ModelContext(max_model_len=4096, encode=_nothing)
    (replacement,) = GLM.replacements([VideoSize(64, 32, frames, 1.0)], context)
    assert len(replacement.token_ids) == tokens
