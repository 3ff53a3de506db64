"""The pictures of an H.264, HEVC or MPEG-2 stream: their size and order, from its parameter sets.

Source: ITU-T H.264 (7.3.2.1, E.1), H.265 (7.3.2.2) and H.262 (6.2.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mmroute.images.parts import most_parts
from mmroute.videos.boxes import Box
from mmroute.videos.header import not_predictable

CUT_WITHIN_A_FRAME: Final = (
    "it is cut within a frame, which a decoder may show: cut it with ffmpeg -i FILE -c copy"
)
_SCAN: Final = b"\xff\xda"
_MPEG_4_SHOWN: Final = 64  # bytes from which a picture was made of each part
_MARKER: Final = 0xFF
_ENTRY: Final = 78  # bytes of the description of a video, before its boxes
_UNIT_HEAD: Final = 4  # bytes that tell the length of a unit
_MAX_SETS: Final = 64  # of one kind
_MAX_BUFFERS: Final = 32
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
    at, left = 2, most_parts(len(data))
    while at + 4 <= len(data) and data[at : at + 2] != _SCAN:
        left -= 1
        if data[at] != _MARKER or left < 0:
            raise not_predictable("a JPEG with bytes between its segments, or with too many")
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return at if data[at : at + 2] == _SCAN else max(at, len(data))


def has_whole_units(frame: bytes) -> bool:
    """Whether a frame of H.264 or HEVC is a row of units, each behind its length."""
    at = 0
    for _ in range(most_parts(len(frame))):
        if at + _UNIT_HEAD >= len(frame):
            break
        at += _UNIT_HEAD + int.from_bytes(frame[at : at + _UNIT_HEAD])
    return at == len(frame)


def held_at_cut(entry: Box, part: bytes) -> int | None:
    """The number of whole frames that a decoder of H.264 or HEVC holds back at a frame that is cut.

    The decoder refuses the frame that is cut, because one of its units is longer than what is left.

    Source: FFmpeg 9 ``libavcodec/h2645_parse.c`` (`ff_h2645_packet_split`).
    """
    at = 0
    for _ in range(most_parts(len(part))):
        at += _UNIT_HEAD
        if at >= len(part):
            raise not_predictable(CUT_WITHIN_A_FRAME)
        at += int.from_bytes(part[at - _UNIT_HEAD : at])
        if at > len(part):
            break
    else:
        raise not_predictable(CUT_WITHIN_A_FRAME)
    found = pictures_of(entry)
    return found.pop().held if len(found) == 1 else None


def pictures_of(entry: Box) -> set[Pictures]:
    """What the parameter sets in the description of H.264 or HEVC say."""
    boxes = entry.within(_ENTRY)
    return {
        *(h264_pictures(unit) for box in boxes.get(b"avcC", ()) for unit in _avc_sets(box)),
        *(hevc_pictures(unit) for box in boxes.get(b"hvcC", ()) for unit in _hevc_sets(box)),
    }


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
        if count > _MAX_SETS:
            raise not_predictable(CUT_WITHIN_A_FRAME)
        for _ in range(count):
            (length,) = box.unpack("H", at)
            if kind & 63 == _SPS:
                yield box.data[box.start + at + 2 : box.start + at + 2 + length]
            at += 2 + length


_WITH_CHROMA: Final = frozenset({44, 83, 86, 100, 110, 118, 122, 128, 134, 138, 139, 244})
_CROPPED_BY: Final = {1: 2, 3: 1}  # pixels of a unit of cropping, by the format of colours
_SUB_LAYER_LEVEL: Final = 8  # bits
_PROFILE: Final = 88  # bits
_MAX_ZEROS: Final = 32
_OWN_ASPECT: Final = 255  # a ratio of sides that follows, and is in no table


class Pictures(NamedTuple):
    """What a sequence parameter set says of all pictures."""

    width: int  # the width in pixels
    height: int  # the height in pixels
    # The number of pictures that a decoder holds back, to put them in order; None if the set does
    # not tell it.
    held: int | None


class Bits:
    """Reads the bits of a parameter set, without the bytes that keep start codes away."""

    def __init__(self, data: bytes) -> None:
        self.data = data.replace(b"\0\0\3", b"\0\0")
        self.at = 0

    def take(self, width: int) -> int:
        """An unsigned integer of so many bits."""
        end = self.at + width
        if end > 8 * len(self.data):
            raise not_predictable("a parameter set that is cut")
        value = int.from_bytes(self.data[self.at // 8 : -(-end // 8)]) >> (-end % 8)
        self.at = end
        return value & ((1 << width) - 1)

    def golomb(self) -> int:
        """An unsigned integer in Exp-Golomb code; the parity of a signed one is not read."""
        zeros = 0
        while not self.take(1):
            zeros += 1
            if zeros > _MAX_ZEROS:
                raise not_predictable("a broken parameter set")
        return (1 << zeros) - 1 + self.take(zeros)


def h264_pictures(unit: bytes) -> Pictures:
    """The pictures by a sequence parameter set of H.264, with its header of one byte."""
    bits = Bits(unit[1:])
    profile = bits.take(24) >> 16
    bits.golomb()
    unit_of_crop = _CROPPED_BY[1]
    if profile in _WITH_CHROMA:
        unit_of_crop = _chroma(bits)
        depths = bits.golomb(), bits.golomb()
        if depths != (0, 0) or bits.take(1) or bits.take(1):
            raise not_predictable("more than 8 bits of a colour, or scaling lists")
    bits.golomb()
    order = bits.golomb()
    if order == 0:
        bits.golomb()
    elif order == 1:
        raise not_predictable("an order of pictures of type 1")
    bits.golomb()
    bits.take(1)
    width, height = 16 * (bits.golomb() + 1), 16 * (bits.golomb() + 1)
    if not bits.take(1):
        raise not_predictable("interlaced pictures")
    bits.take(1)
    width, height = _cropped(bits, width, height, unit_of_crop)
    return Pictures(width, height, _h264_held(bits) if bits.take(1) else None)


def _h264_held(bits: Bits) -> int | None:
    """The number of pictures that are held back, by the information on usability (VUI)."""
    if bits.take(1) and bits.take(8) == _OWN_ASPECT:
        bits.take(32)
    if bits.take(1):  # overscan
        bits.take(1)
    if bits.take(1):  # colours
        bits.take(4)
        bits.take(24 * bits.take(1))
    if bits.take(1):  # places of chroma samples
        bits.golomb(), bits.golomb()
    bits.take(65 * bits.take(1))  # times
    buffered = [bits.take(1) and _buffer(bits) for _ in range(2)]
    bits.take(1 + any(buffered))
    if not bits.take(1):
        return None
    bits.take(1)
    return [bits.golomb() for _ in range(5)][-1]


def _buffer(bits: Bits) -> int:
    """The number of a decoder's buffers that is described; the descriptions are skipped."""
    count = bits.golomb() + 1
    if count > _MAX_BUFFERS:
        raise not_predictable("a broken parameter set")
    bits.take(8)
    for _ in range(count):
        bits.golomb(), bits.golomb(), bits.take(1)
    bits.take(20)
    return count


def hevc_pictures(unit: bytes) -> Pictures:
    """The pictures by a sequence parameter set of HEVC, with its header of two bytes."""
    bits = Bits(unit[2:])
    bits.take(4)
    layers = bits.take(3)
    bits.take(1 + _PROFILE + _SUB_LAYER_LEVEL)
    present = [(bits.take(1), bits.take(1)) for _ in range(layers)]
    if layers:
        bits.take(2 * (8 - layers))
    for profile, level in present:
        bits.take(_PROFILE * profile + _SUB_LAYER_LEVEL * level)
    bits.golomb()
    unit_of_crop = _chroma(bits)
    width, height = _cropped(bits, bits.golomb(), bits.golomb(), unit_of_crop)
    bits.golomb(), bits.golomb(), bits.golomb()
    for _ in range(layers + 1 if bits.take(1) else 1):  # the last one is that of all layers
        _, held, _ = bits.golomb(), bits.golomb(), bits.golomb()
    return Pictures(width, height, held)


def mpeg2_size(header: bytes) -> tuple[int, int]:
    """Width and height by a sequence header of MPEG-2, behind its start code."""
    bits = Bits(header[:4])
    return bits.take(12), bits.take(12)


def _chroma(bits: Bits) -> int:
    """The pixels of a unit of cropping."""
    chroma = bits.golomb()
    if chroma not in _CROPPED_BY or (chroma == 3 and bits.take(1)):  # noqa: PLR2004 - 4:4:4
        raise not_predictable("colours that are neither 4:2:0 nor 4:4:4")
    return _CROPPED_BY[chroma]


def _cropped(bits: Bits, width: int, height: int, pixels: int) -> tuple[int, int]:
    """The size after the window that a set may have, in units of so many pixels."""
    if bits.take(1):
        left, right, top, bottom = (pixels * bits.golomb() for _ in range(4))
        width, height = width - left - right, height - top - bottom
    if width < 1 or height < 1:
        raise not_predictable(f"a picture of {width}x{height}")
    return width, height
