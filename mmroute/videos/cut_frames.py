"""Whether a decoder makes a picture of a frame that is cut, where a file ends within it."""

from __future__ import annotations

from typing import Final

from mmroute.videos.header import not_predictable

CUT_WITHIN_A_FRAME: Final = (
    "it is cut within a frame, which a decoder may show: cut it with ffmpeg -i FILE -c copy"
)
_SCAN: Final = b"\xff\xda"
_MPEG_4_SHOWN: Final = 64  # bytes from which a picture was made of each part
_MARKER: Final = 0xFF


def shows_cut_jpeg(part: bytes) -> bool:
    """Whether FFmpeg's decoder shows a JPEG that is cut: if its coded picture begins."""
    return start_of_scan(part) < len(part)


def shows_cut_mpeg4(part: bytes) -> bool:
    """Whether FFmpeg's decoder shows a frame of MPEG-4 that is cut.

    Raises:
        InexactError: `video_not_predictable` if the part is short.
    """
    if len(part) < _MPEG_4_SHOWN:
        raise not_predictable(CUT_WITHIN_A_FRAME)
    return True


def start_of_scan(data: bytes) -> int:
    """The offset at which the coded picture of a JPEG begins; beyond its end if it is cut before.

    Raises:
        InexactError: `video_not_predictable` if there are bytes between its segments.
    """
    at = 2
    while at + 4 <= len(data) and data[at : at + 2] != _SCAN:
        if data[at] != _MARKER:
            raise not_predictable("a JPEG with bytes between its segments")
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return at if data[at : at + 2] == _SCAN else max(at, len(data))
