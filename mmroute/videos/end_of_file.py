"""The number of frames that the engine finds at the end of a file, and of those it can read.

The engine distrusts the number of frames in the header. It has OpenCV seek to the end and asks for
the position. OpenCV seeks to a key frame before the end, derives that frame's number from its
*time*, as if the rate were constant, and counts on from there. If the position is two or more
frames below the header's number, the engine uses it instead. If the header tells more frames than
there are, the last ones cannot be read, and the engine drops those of them that it samples.

Source: vLLM ``multimodal/video_decoders/opencv.py`` (`get_video_metadata`); OpenCV 5.0
``modules/videoio/src/cap_ffmpeg_impl.hpp`` (`CvCapture_FFMPEG::seek`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from mmroute.videos.boxes import Integers
from mmroute.videos.header import not_predictable
from mmroute.videos.samples import Samples

_FIRST_STEP: Final = 16  # OpenCV first seeks to so many frames before the end
_TOLERANCE: Final = 1  # the engine accepts a difference of so many frames


def frames_at_end(samples: Samples, scale: int, fps: float, *, start: int) -> int:
    """The number of frames that the engine counts in a file whose rate varies."""
    shown, total = samples.shown, len(samples.shown)
    order = shown.argsort(kind="stable").argsort(kind="stable")
    numbers = _numbers((shown - shown[0]) / scale, fps)
    keys = samples.keys
    if keys[-1] >= total or (np.diff(keys) <= 0).any():
        raise not_predictable("its key frames are not in order")
    sought = start + int(max(total - _FIRST_STEP, 0) / fps * scale + 0.5)
    counts: set[int] = set()
    for key in _candidates(keys, samples.decoded, order, sought):
        if not key:  # OpenCV then stays at the beginning
            counts.add(total)
            continue
        first = key + (order[key:] <= order[key]).nonzero()[0]
        if not 0 < numbers[first].min() <= numbers[first].max() <= total:
            raise not_predictable("its rate varies, and OpenCV does not find its end at once")
        positions = numbers[first] - order[first] + total
        counts |= {counted(position, total) for position in positions.tolist()}
    return only(counts)


def frames_wherever_sought(
    seconds: npt.NDArray[np.float64],
    fps: float,
    claims: Collection[int],
    begins: Integers | None = None,
) -> int:
    """The number of frames that the engine counts, whatever key frame OpenCV seeks to."""
    total = len(seconds)
    found = _numbers(seconds, fps) - np.arange(total) + total
    positions = set((found if begins is None else found[begins]).tolist())
    return only({counted(position, claimed) for claimed in claims for position in positions})


def _numbers(seconds: npt.NDArray[np.float64], fps: float) -> Integers:
    return (fps * seconds + 0.5).astype(np.int64)


def counted(position: int, claimed: int) -> int:
    """The number of frames that the engine uses, by the position that OpenCV reports."""
    return position if position < claimed - _TOLERANCE else claimed


def only(counts: set[int]) -> int:
    """The one number of frames that the engine may use."""
    if len(counts) != 1:
        raise not_predictable(
            f"its rate varies, and the engine may count from {min(counts)} to {max(counts)} frames"
        )
    return counts.pop()


def _candidates(keys: Integers, decoded_at: Integers, order: Integers, sought: int) -> list[int]:
    """The key frames to which OpenCV may seek for a time: one, or two that must agree."""
    decoded_at = decoded_at[keys]
    first, last = (
        max(int(decoded_at.searchsorted(sought + rounding, "right")) - 1, 0) for rounding in (-1, 1)
    )
    key = int(keys[first])
    if (order[key:] < order[key]).any():  # what is shown before it needs the key frame before it
        first = max(first - 1, 0)
    found: list[int] = keys[first : last + 1].tolist()
    return found
