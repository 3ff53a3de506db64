"""Which frames are decoded, as vLLM 0.33.0's samplers choose them (``multimodal/video.py``)."""

from __future__ import annotations

from typing import Any

import pytest

from mmroute import InexactError, Reason, VideoSize
from mmroute.geometry.frame_sampling import Sampler, Sampling, sample, sampling_of

NTSC = 30000 / 1001

# Computed with the engine's own `compute_frames_index_to_sample`.
CHOSEN: list[tuple[str, int, float, dict[str, Any], list[int]]] = [
    ("qwen2_vl", 60, 30.0, {}, [0, 15, 30, 45]),
    (
        "qwen2_vl",
        451,
        29.97,
        {"fps": 1},
        [0, 32, 64, 96, 128, 161, 193, 225, 257, 289, 322, 354, 386, 418],
    ),
    ("qwen2_vl", 3, 30.0, {}, [0, 1]),
    ("qwen2_vl", 100, 25.0, {"max_frames": 7}, [0, 16, 33, 50, 66, 83]),
    ("qwen3_vl", 67, NTSC, {}, [0, 22, 44, 66]),
    ("qwen3_vl", 3, 30.0, {}, [0, 1, 2]),
    ("qwen3_vl", 200, 24.0, {"fps": 0.5}, [0, 66, 133, 199]),
    ("qwen3_vl", 60, 0.0, {}, [0, 15, 30, 44, 59]),
    ("opencv_dynamic", 58, 30.0, {}, [0, 15, 30]),
    ("opencv_dynamic", 67, NTSC, {"fps": 4}, [0, 8, 15, 23, 30, 38, 45, 53]),
    ("opencv_dynamic", 100, 10.0, {"max_duration": 3}, [0, 20, 40, 60, 80, 99]),
    ("glm46v", 58, 30.0, {}, [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30]),
    ("glm46v", 45, NTSC, {}, [0, 3, 7, 11, 15, 18, 22, 26, 30]),
    (
        "glm46v",
        30,
        10.0,
        {"fps": 9},
        [0, 2, 4, 5, 7, 9, 10, 12, 14, 15, 17, 19, 20, 22, 24, 25, 27, 29],
    ),
    ("opencv", 58, 30.0, {"num_frames": 6}, [0, 11, 22, 34, 45, 57]),
    ("opencv", 58, 30.0, {"fps": 3}, [0, 14, 28, 42, 57]),
    ("opencv", 7, 10.0, {}, [0, 1, 2, 3, 4, 5, 6]),
    ("opencv", 40, 10.0, {"num_frames": -1}, list(range(40))),
    ("opencv", 5, 30.0, {"fps": 1}, [0]),
    (
        "minimax_m3_vl",
        451,
        29.97,
        {},
        [0, 30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 330, 360, 390, 420, 450],
    ),
    ("minimax_m3_vl", 67, NTSC, {"fps": 2}, [0, 15, 30, 45, 60]),
    ("minimax_m3_vl", 9, 0.0, {}, [0]),
]
REFUSED: list[tuple[str, int, float, dict[str, Any]]] = [
    ("qwen2_vl", 1, 30.0, {}),
    ("qwen2_vl", 60, 0.0, {}),
    ("opencv_dynamic", 14, 30.0, {}),
    ("opencv_dynamic", 2_000_000, 1.0, {"fps": 1000, "max_duration": 10**9}),
]


@pytest.mark.parametrize(("sampler", "total", "fps", "asked", "frames"), CHOSEN)
def test_frames_are_those_of_the_engine(
    sampler: str, total: int, fps: float, asked: dict[str, Any], frames: list[int]
) -> None:
    rule = Sampler(sampler)
    found = sample(rule, VideoSize(64, 48, total, fps), sampling_of(rule, asked))
    assert list(found.indices) == frames
    assert found.sampled_again == (len(frames) == total)


@pytest.mark.parametrize(("sampler", "total", "fps", "asked"), REFUSED)
def test_what_the_engine_refuses(
    sampler: str, total: int, fps: float, asked: dict[str, Any]
) -> None:
    rule = Sampler(sampler)
    with pytest.raises(InexactError) as caught:
        sample(rule, VideoSize(64, 48, total, fps), sampling_of(rule, asked))
    assert caught.value.reason is Reason.ITEM_REFUSED


@pytest.mark.parametrize(
    "asked",
    [
        {"fps": 0},
        {"fps": True},
        {"fps": "2"},
        {"num_frames": 0},
        {"num_frames": 1.5},
        {"backend": "x"},
        {"frames_indices": [0]},
        {"frame_recovery": 1},
        {"data": "x"},
    ],
)
def test_what_was_not_observed_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InexactError) as caught:
        sampling_of(Sampler.OPENCV, asked)
    assert caught.value.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS


def test_names_that_a_sampler_does_not_read_are_ignored() -> None:
    asked = {"fps": 2, "max_frames": 3, "max_duration": 0.5, "frame_recovery": True, "other": None}
    assert sampling_of(Sampler.OPENCV, asked) == Sampling(fps=2, frame_recovery=True)
    asked = asked | {"max_duration": -1, "frame_recovery": False}
    assert sampling_of(Sampler.QWEN3_VL, asked) == Sampling(2, max_frames=3)


def test_a_list_of_frames_is_taken_whole() -> None:
    video = VideoSize(64, 48, 5, 1.0, frame_list=True)
    frames = sample(Sampler.QWEN3_VL, video, sampling_of(Sampler.QWEN3_VL, {"fps": 2}))
    assert list(frames.indices) == [0, 1, 2, 3, 4]
    assert frames.times == [0, 0.5, 1, 1.5, 2]
    assert not frames.sampled_again


def test_frames_that_cannot_be_read_are_left_out() -> None:
    video = VideoSize(64, 48, 5, 30.0, unreadable=2)
    frames = sample(Sampler.OPENCV, video, Sampling())
    assert list(frames.indices) == [0, 1, 2]
    assert frames.total == 5
    assert not frames.sampled_again


@pytest.mark.parametrize(
    ("most", "lost", "read", "recovered"),
    [
        (-1, 3, [0, 1, 2, 4, 5, 6, 7], [0, 1, 2, 4, 5, 6, 7]),
        (4, 3, [0, 6], [0, 4, 6]),
        (4, 2, [0, 3, 6], [0, 3, 6]),
        (7, 3, [0, 1, 4, 6, 7], [0, 1, 4, 6, 7]),
        (2, 0, [], [1]),
    ],
)
def test_a_frame_that_is_lost_is_left_out_or_recovered(
    most: int, lost: int, read: list[int], recovered: list[int]
) -> None:
    """As the engine's `read_frames` does with a capture of which these frames cannot be grabbed."""
    video = VideoSize(64, 48, 10, 30.0, unreadable=2, lost=lost)
    for frame_recovery, expected in ((False, read), (True, recovered)):
        sampling = Sampling(num_frames=most, frame_recovery=frame_recovery)
        if expected:
            assert list(sample(Sampler.OPENCV, video, sampling).indices) == expected
        else:
            with pytest.raises(InexactError, match="cannot read"):
                sample(Sampler.OPENCV, video, sampling)


def test_a_video_without_a_readable_frame_is_refused() -> None:
    with pytest.raises(InexactError, match="cannot read") as caught:
        sample(Sampler.OPENCV, VideoSize(64, 48, 5, 30.0, unreadable=5), Sampling())
    assert caught.value.reason is Reason.ITEM_REFUSED
