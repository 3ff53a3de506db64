"""Chooses the frames of a video that an engine decodes.

Sources: vLLM ``multimodal/video.py``, ``multimodal/media/video.py``. Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mmroute.errors import InexactError, Reason, argument_refused, item_refused
from mmroute.requests.items import VideoSize


class Sampler(StrEnum):
    """A rule for choosing frames, by the engine's own name."""

    QWEN2_VL = "qwen2_vl"
    QWEN3_VL = "qwen3_vl"
    OPENCV_DYNAMIC = "opencv_dynamic"
    GLM46V = "glm46v"
    OPENCV = "opencv"
    MINIMAX_M3_VL = "minimax_m3_vl"


BY_PROCESSOR: Final[Mapping[str, Sampler | None]] = {
    "Qwen2VLVideoProcessor": Sampler.QWEN2_VL,
    "Qwen3VLVideoProcessor": Sampler.QWEN3_VL,
    "Cosmos3EdgeVideoProcessor": Sampler.QWEN3_VL,
    "Glm4vVideoProcessor": Sampler.OPENCV_DYNAMIC,
    "Glm46VVideoProcessor": Sampler.GLM46V,
    "MiniMaxM3VLVideoProcessor": Sampler.MINIMAX_M3_VL,
    "EmbeddingGemma2VideoProcessor": None,
    "Glm5NextVideoProcessor": None,
    "Glm5nextVideoProcessor": None,
    "GlmgaVideoProcessor": None,
    "LlavaOnevision2VideoProcessor": None,
    "Molmo2VideoProcessor": None,
    "MuseSparkVideoProcessor": None,
}
"""Class of video processors -> its sampler, where the engine has one; None for one that is not
covered. All other classes have `Sampler.OPENCV`. Source: vLLM `VIDEO_LOADER_REGISTRY`."""

SAMPLED_TYPES: Final = frozenset({
    "cosmos3_edge", "cosmos3_omni", "exaone4_5", "glm46v", "glm4v", "hyperclovax_vision_v2",
    "minimax_m3_vl", "qwen2_5_omni", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_5_moe",
    "qwen3_omni_moe", "qwen3_vl", "qwen3_vl_moe", "qwen4_exp",
})  # fmt: skip
"""Model types that have one of these classes where no file names a class. All other types have
`Sampler.OPENCV` then. Source: transformers 5.20.2 `VIDEO_PROCESSOR_MAPPING_NAMES`."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling options in a request's ``media_io_kwargs``; None for the sampler's defaults."""

    fps: float | None = None
    num_frames: int | None = None  # the most; -1 for no limit
    min_frames: int | None = None
    max_frames: int | None = None  # of samplers that ignore `num_frames`
    max_duration: int | None = None  # in seconds, up to which frames are taken at a constant rate
    frame_recovery: bool = False  # whether the next frame stands in for one that cannot be read


DEFAULT: Final = Sampling()
"""The options of a request that sets none."""


class Frames(NamedTuple):
    """The frames of a video that the engine decodes, and their metadata in the engine."""

    indices: Sequence[int]  # ascending
    total: int  # in the file
    fps: float  # 24 for Qwen3-VL where the file has no rate
    backend: str  # the engine's name for the reader
    sampled_again: bool  # whether the model's processor samples these frames again
    certain: bool = True  # whether the indices are the same on every machine; their count always is

    @property
    def duration(self) -> float:
        """The length of the file in seconds."""
        return self.total / self.fps if self.fps > 0 else 0

    @property
    def times(self) -> list[float]:
        """The times of the frames in seconds."""
        return [index / self.fps for index in self.indices]


_READ_BY_ALL: Final = frozenset({"fps", "num_frames"})
_FIELDS: Final[Mapping[Sampler, frozenset[str]]] = {
    Sampler.QWEN2_VL: _READ_BY_ALL | {"min_frames", "max_frames"},
    Sampler.QWEN3_VL: _READ_BY_ALL | {"min_frames", "max_frames"},
    Sampler.OPENCV_DYNAMIC: _READ_BY_ALL | {"max_duration"},
    Sampler.GLM46V: _READ_BY_ALL,
    Sampler.OPENCV: _READ_BY_ALL,
    Sampler.MINIMAX_M3_VL: _READ_BY_ALL,
}
# Names that choose a decoder or set its options, that only lists of frames have, or that are those
# of parameters of the engine's own functions. A reader ignores all other names.
_NOT_IGNORED: Final = frozenset({
    "backend", "cls", "data", "decoded_budget", "device", "do_sample_frames", "duration",
    "frames_indices", "hw_decoders", "image_io", "max_height", "max_width", "num_ffmpeg_threads",
    "pool_size", "seek_mode", "self", "source", "target", "temporal_patch_size", "timeout_sec",
    "total_num_frames", "video_backend",
})  # fmt: skip
_MAX_FRAMES: Final = 2_000_000  # 18 hours at 30 a second
_MAX_RATE: Final = 1e6
_MAX_FPS: Final = 1000  # that is asked for
_DEFAULT_NUM_FRAMES: Final = 32
_MAX_QWEN_FRAMES: Final = 768
_MIN_QWEN_FRAMES: Final = 4
_MAX_QWEN_FPS: Final = 30
_UNKNOWN_FPS: Final = 24.0
_MAX_GLM_SECONDS: Final = 2400
_MAX_GLM_FRAMES: Final = 640
_GLM_FPS: Final = ((30, 3.0), (300, 1.0), (_MAX_GLM_SECONDS, 0.5))


def sampling_of(sampler: Sampler, media_io: Mapping[str, Any]) -> Sampling:
    """The sampling options of a request. A sampler ignores names that it does not read."""
    options = {}
    for name, value in media_io.items():
        place = f"media_io_kwargs.video.{name}"
        if name in _NOT_IGNORED:
            raise argument_refused(place, value, f"one of {', '.join(sorted(_FIELDS[sampler]))}")
        if name == "frame_recovery":
            if not isinstance(value, bool):
                raise argument_refused(place, value, "true or false")
            options[name] = value
        if name not in _FIELDS[sampler]:
            continue
        options[name] = value
        if name == "fps":
            if type(value) not in (int, float) or not 0 < value <= _MAX_FPS:
                raise argument_refused(place, value, f"a positive number up to {_MAX_FPS}")
        elif not (type(value) is int and (value > 0 or (name == "num_frames" and value == -1))):
            raise argument_refused(place, value, "a positive integer")
    return Sampling(**options)


def sample(sampler: Sampler, video: VideoSize, sampling: Sampling) -> Frames:
    """The frames of a video that are decoded."""
    if video.num_frames > _MAX_FRAMES or not (
        video.fps == 0 or 1 / _MAX_RATE < video.fps < _MAX_RATE
    ):
        raise InexactError(
            Reason.VIDEO_NOT_PREDICTABLE,
            f"{video}: the engine was not observed with so many frames, or with such a frame rate",
        )
    if video.frame_list:
        fps = float(sampling.fps or 1)
        return Frames(range(video.num_frames), video.num_frames, fps, "jpeg_sequence", False)
    fps = video.fps
    if sampler is Sampler.QWEN3_VL and not fps > 0:
        fps = _UNKNOWN_FPS
    readable = video.num_frames - video.unreadable
    indices = _RULES[sampler](video.num_frames, fps, sampling)
    if not indices:
        raise item_refused(video, "it chooses no frame of it")
    if isinstance(indices, range) and video.lost is None:  # all frames, which may be millions
        indices = indices[: max(readable, 0)]
    else:
        indices = _readable(set(indices), readable, video.lost, sampling)
    if not indices:
        raise item_refused(video, "it cannot read the frame that it chooses")
    dynamic = sampler is Sampler.OPENCV_DYNAMIC
    return Frames(
        indices,
        video.num_frames,
        fps,
        "opencv_dynamic" if dynamic else "opencv",
        len(indices) == video.num_frames,
        sampler is not Sampler.QWEN2_VL or _rounds_alike(video.num_frames, fps, sampling),
    )


def _readable(chosen: set[int], readable: int, lost: int | None, sampling: Sampling) -> list[int]:
    """The chosen frames that can be read, ascending."""
    if lost in chosen:
        if sampling.frame_recovery and lost < max(chosen):
            chosen.add(lost + 1)  # which the engine can read
        chosen.remove(lost)
    return sorted(index for index in chosen if index < readable)


def _qwen2_vl(total: int, fps: float, sampling: Sampling) -> list[int]:
    step = _qwen2_vl_step(total, fps, sampling)
    indices: list[int] = np.minimum(_float_range(total, step, width=1), total - 1).tolist()
    return indices


def _qwen2_vl_step(total: int, fps: float, sampling: Sampling) -> float:
    """The distance in frames from one chosen frame to the next."""
    if not fps > 0:
        raise item_refused(f"a video of {total} frames", "its frame rate is unknown")
    most = min(sampling.max_frames or _MAX_QWEN_FRAMES, _MAX_QWEN_FRAMES, total) // 2 * 2
    wanted = total / fps * min(sampling.fps or 2, _MAX_QWEN_FPS)
    count = math.floor(min(max(wanted, sampling.min_frames or _MIN_QWEN_FRAMES), most) / 2) * 2
    if not count:
        raise item_refused(f"a video of {total} frames", "its sampler divides by zero")
    return total / count


def _float_range(total: int, step: float, *, width: int) -> npt.NDArray[np.int64]:
    """``torch.arange(0, total, step).int()`` on a machine that computes `width` numbers at once.

    The first number of each group is rounded to 32 bits, and the others are computed from it.
    """
    places = np.arange(math.ceil(total / step))
    first = places // width * width
    return (
        ((first * step).astype(np.float32) + (places - first) * step)
        .astype(np.float32)
        .astype(np.int64)
    )


def _rounds_alike(total: int, fps: float, sampling: Sampling) -> bool:
    """Whether processors of every vector width choose the same frames."""
    step = _qwen2_vl_step(total, fps, sampling)
    plain, *others = (_float_range(total, step, width=width) for width in (1, 8, 16))
    return all(np.array_equal(plain, other) for other in others)


def _qwen3_vl(total: int, fps: float, sampling: Sampling) -> list[int]:
    wanted = int(total / fps * min(sampling.fps or 2, _MAX_QWEN_FPS))
    most = min(sampling.max_frames or _MAX_QWEN_FRAMES, _MAX_QWEN_FRAMES, total)
    count = min(max(wanted, sampling.min_frames or _MIN_QWEN_FRAMES), most)
    indices: list[int] = np.linspace(0, total - 1, count).round().astype(int).tolist()
    return indices


def _opencv_dynamic(total: int, fps: float, sampling: Sampling) -> Sequence[int]:
    wanted = sampling.fps or 2
    longest = sampling.max_duration or 300
    duration = total / fps if fps > 0 else 0
    if duration <= longest:
        count = math.floor(duration * wanted)
        if count > _MAX_FRAMES:
            raise item_refused(f"a video of {total} frames", f"it would choose {count} frames")
        return [min(total - 1, math.ceil(i * fps / wanted)) for i in range(count)]
    count = int(longest * wanted)
    if count >= total:
        return range(total)
    seconds = np.linspace(0, duration, count)
    return [min(total - 1, math.ceil(second * fps)) for second in seconds]


def _glm46v(total: int, fps: float, _sampling: Sampling) -> list[int]:
    duration = total / fps if fps > 0 else 0
    effective = min(duration, _MAX_GLM_SECONDS)
    rate = next(rate for limit, rate in _GLM_FPS if effective <= limit)
    count = min(int(effective * rate * 2), _MAX_GLM_FRAMES)
    chosen: list[int] = []
    if total < count:
        chosen = _spread(0, total - 1, count)
    else:
        frame_seconds = 1 / fps if fps > 0 else 0
        second = 0.0
        for index in range(total):
            if index * frame_seconds >= second:
                second += 1 / (2 * rate)
                chosen.append(index)
                if second >= int(duration):
                    break
    if len(chosen) < count:
        chosen = _spread(chosen[0], chosen[-1], count)
    elif len(chosen) > count:
        chosen = _spread(0, total - 1, count)
    return chosen


def _opencv(total: int, fps: float, sampling: Sampling) -> Sequence[int]:
    limit = _DEFAULT_NUM_FRAMES if sampling.num_frames is None else sampling.num_frames
    count = total if limit == -1 else min(limit, total)
    if sampling.fps is not None:
        count = min(count, math.floor((total / fps if fps > 0 else 0) * sampling.fps))
    count = max(1, count)
    return range(total) if count == total else _spread(0, total - 1, count)


def _minimax_m3_vl(total: int, fps: float, sampling: Sampling) -> list[int]:
    chosen = [0]
    if not fps > 0:
        return chosen
    step = 1 / (sampling.fps or 1)
    while True:
        last = chosen[-1]
        following = max(math.ceil((last / fps + step - 1e-4) * fps), last + 1)
        if following >= total:
            return chosen
        chosen.append(following)


def _spread(first: int, last: int, count: int) -> list[int]:
    indices: list[int] = np.linspace(first, last, count, dtype=int).tolist()
    return indices


_RULES: Final[Mapping[Sampler, Callable[[int, float, Sampling], Sequence[int]]]] = {
    Sampler.QWEN2_VL: _qwen2_vl,
    Sampler.QWEN3_VL: _qwen3_vl,
    Sampler.OPENCV_DYNAMIC: _opencv_dynamic,
    Sampler.GLM46V: _glm46v,
    Sampler.OPENCV: _opencv,
    Sampler.MINIMAX_M3_VL: _minimax_m3_vl,
}
