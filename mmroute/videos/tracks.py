"""What the headers of an MP4 file and of its tracks say: kinds, time units and turned pictures."""

from __future__ import annotations

import struct
from typing import Final

from mmroute.videos.boxes import Box
from mmroute.videos.header import not_predictable
from mmroute.videos.rationals import INT_MAX

_ONE: Final = 1 << 16  # 1 in 16.16 fixed point
_FRACTION_BITS: Final = 14  # the last column of a matrix is in 2.30 fixed point
# The first two columns of a display matrix: a, b, c, d.
_KEEPS: Final = frozenset({(_ONE, 0, 0, _ONE), (-_ONE, 0, 0, -_ONE)})
_SWAPS: Final = frozenset({(0, _ONE, -_ONE, 0), (0, -_ONE, _ONE, 0)})


def track_id(track: Box) -> int:
    """The number by which fragments and indexes name a track."""
    header = track.only(b"tkhd")
    return header.unpack("I", 20 if header.is_wide else 12)[0]


def handler(track: Box) -> bytes:
    """The kind of a track, such as ``vide`` and ``soun``."""
    box = track.only(b"mdia", b"hdlr")
    return struct.pack(">I", *box.unpack("I", 8))


def movie_time_scale(header: Box) -> int:
    """The time units per second of edit lists."""
    if _matrix(header, 48 if header.is_wide else 36) != (_ONE, 0, 0, _ONE):
        raise not_predictable("the movie is turned as a whole")
    return _positive(header.unpack("I", 20 if header.is_wide else 12)[0])


def is_turned(track_header: Box) -> bool:
    """Whether width and height change places when the video is shown."""
    matrix = _matrix(track_header, 52 if track_header.is_wide else 40)
    if matrix not in _KEEPS | _SWAPS:
        raise not_predictable(
            "the picture is mirrored, scaled or turned by less than a right angle"
        )
    return matrix in _SWAPS


def _matrix(box: Box, offset: int) -> tuple[int, ...]:
    a, b, u, c, d, v, _, _, w = box.unpack("9i", offset)
    if (u, v, w) != (0, 0, _ONE << _FRACTION_BITS):
        raise not_predictable("the picture is shown in perspective")
    return a, b, c, d


def time_scale(track: Box) -> int:
    """The time units per second of a track."""
    header = track.only(b"mdia", b"mdhd")
    return _positive(header.unpack("I", 20 if header.is_wide else 12)[0])


def _positive(scale: int) -> int:
    if not 0 < scale <= INT_MAX:
        raise not_predictable(f"{scale} time units per second")
    return scale
