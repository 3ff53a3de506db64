"""The number of frames that the engine finds at the end of a file whose rate varies.

The engine distrusts the number of frames in the header. It has OpenCV seek to the end and asks for
the position. OpenCV seeks to a key frame before the end, derives that frame's number from its
*time*, as if the rate were constant, and counts on from there. If the position is two or more
frames below the header's number, the engine uses it instead.

Source: vLLM ``multimodal/video_decoders/opencv.py`` (`get_video_metadata`); OpenCV 5.0
``modules/videoio/src/cap_ffmpeg_impl.hpp`` (`CvCapture_FFMPEG::seek`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.videos.boxes import Integers
from mmroute.videos.header import not_predictable

_FIRST_STEP: Final = 16  # OpenCV first seeks to so many frames before the end
_TOLERANCE: Final = 1  # the engine accepts a difference of so many frames


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """The times of all frames, in the order of the file and in the track's time units.

    Attributes:
        decoded: when each frame is decoded, ascending from 0, shape (frames,), int64.
        shown: when each frame is shown, shape (frames,), int64.
    """

    decoded: Integers
    shown: Integers


def frames_at_end(
    frames: FrameTimes, keys: Integers | None, scale: int, fps: float, *, start: int
) -> int:
    """The number of frames that the engine counts.

    Args:
        frames: the times of all frames.
        keys: the indices of the key frames, ascending; None if every frame is a key frame.
        scale: the number of time units per second.
        fps: the number of frames per second.
        start: the time at which the first frame is shown, as FFmpeg counts time.

    Raises:
        InexactError: `video_not_predictable`.
    """
    total = len(frames.shown)
    order = frames.shown.argsort(kind="stable").argsort(kind="stable")
    numbers = (fps * ((frames.shown - frames.shown[0]) / scale) + 0.5).astype(np.int64)
    keys = np.arange(total) if keys is None else keys
    if keys[-1] >= total or (np.diff(keys) <= 0).any():
        raise not_predictable("its key frames are not in order")
    sought = start + int(max(total - _FIRST_STEP, 0) / fps * scale + 0.5)
    counts: set[int] = set()
    for key in _candidates(keys, frames.decoded, order, sought):
        if not key:  # OpenCV then stays at the beginning
            counts.add(total)
            continue
        first = key + (order[key:] <= order[key]).nonzero()[0]
        if not 0 < numbers[first].min() <= numbers[first].max() <= total:
            raise not_predictable("its rate varies, and OpenCV does not find its end at once")
        found = numbers[first] - order[first] + total
        counts.update(np.where(found < total - _TOLERANCE, found, total).tolist())
    if len(counts) != 1:
        raise not_predictable(f"its rate varies, and the engine may count one of {sorted(counts)}")
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
