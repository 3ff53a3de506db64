"""What a decoder makes of a frame that is cut, where a file ends within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mmroute.videos.boxes import Box
from mmroute.videos.header import not_predictable
from mmroute.videos.parameter_sets import h264_pictures, hevc_pictures

CUT_WITHIN_A_FRAME: Final = (
    "it is cut within a frame, which a decoder may show: cut it with ffmpeg -i FILE -c copy"
)
_SCAN: Final = b"\xff\xda"
_MPEG_4_SHOWN: Final = 64  # bytes from which a picture was made of each part
_MARKER: Final = 0xFF
_ENTRY: Final = 78  # bytes of the description of a video, before its boxes
_UNIT_HEAD: Final = 4  # bytes that tell the length of a unit
_SPS: Final = 33  # the kind of a sequence parameter set of HEVC


def shows_cut_jpeg(part: bytes) -> bool:
    """Whether FFmpeg's decoder shows a JPEG that is cut: if its coded picture begins."""
    return start_of_scan(part) < len(part)


def shows_cut_mpeg4(part: bytes) -> bool:
    """Whether FFmpeg's decoder shows a frame of MPEG-4 that is cut."""
    if len(part) < _MPEG_4_SHOWN:
        raise not_predictable(CUT_WITHIN_A_FRAME)
    return True


def start_of_scan(data: bytes) -> int:
    """The offset at which the coded picture of a JPEG begins; beyond its end if cut before."""
    at = 2
    while at + 4 <= len(data) and data[at : at + 2] != _SCAN:
        if data[at] != _MARKER:
            raise not_predictable("a JPEG with bytes between its segments")
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return at if data[at : at + 2] == _SCAN else max(at, len(data))


def held_at_cut(entry: Box, part: bytes) -> int | None:
    """The number of whole frames that a decoder of H.264 or HEVC holds back at a frame that is cut.

    The decoder refuses the frame that is cut, because one of its units is longer than what is left.

    Source: FFmpeg 9 ``libavcodec/h2645_parse.c`` (`ff_h2645_packet_split`).
    """
    while len(part) > _UNIT_HEAD:
        end = _UNIT_HEAD + int.from_bytes(part[:_UNIT_HEAD])
        if end > len(part):
            break
        part = part[end:]
    else:
        raise not_predictable(CUT_WITHIN_A_FRAME)
    boxes = entry.within(_ENTRY)
    found = {
        *(h264_pictures(unit) for box in boxes.get(b"avcC", ()) for unit in _avc_sets(box)),
        *(hevc_pictures(unit) for box in boxes.get(b"hvcC", ()) for unit in _hevc_sets(box)),
    }
    return found.pop().held if len(found) == 1 else None


def _avc_sets(box: Box) -> Iterator[bytes]:
    _, length_size, count, length = box.unpack("IBBH")
    if (length_size & 3, count & 31) == (_UNIT_HEAD - 1, 1):
        yield box.data[box.start + 8 : box.start + 8 + length]


def _hevc_sets(box: Box) -> Iterator[bytes]:
    length_size, arrays = box.unpack("BB", 21)
    at = 23
    for _ in range(arrays if length_size & 3 == _UNIT_HEAD - 1 else 0):
        kind, count = box.unpack("BH", at)
        at += 3
        for _ in range(count):
            (length,) = box.unpack("H", at)
            if kind & 63 == _SPS:
                yield box.data[box.start + at + 2 : box.start + at + 2 + length]
            at += 2 + length
