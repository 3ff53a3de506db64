"""Pairs of frames, whose sizes and numbers a model's own files change."""

from __future__ import annotations

import pytest

from mmroute.errors import InexactError, Reason
from mmroute.geometry.frame_sampling import Sampler
from mmroute.geometry.grids.frame_groups import FramePairs
from mmroute.requests.items import VideoSize

KEPT = FramePairs(
    patch_size=14,
    merge_size=2,
    min_pixels=3136,
    max_pixels=12544,
    resize=False,
    sampler=Sampler.QWEN2_VL,
)


def test_frames_that_keep_their_size_count_above_the_limits_too() -> None:
    assert KEPT.count(VideoSize(252, 168, 22, 4)).total == 5 * 9 * 6  # as vLLM 0.33.0 counts


@pytest.mark.parametrize("size", [(60, 48), (56, 27), (30, 28)])
def test_frames_that_keep_a_size_of_half_tokens_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InexactError, match="do_resize is false") as caught:
        KEPT.count(VideoSize(*size, 5, 4))
    assert caught.value.reason is Reason.IMAGE_REFUSED
