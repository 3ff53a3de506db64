"""Whether a file holds a complete picture, by rules compared with Pillow 13.0 on cut files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, BinaryIO, Final, TypeAlias

from PIL import Image, JpegImagePlugin

from mmroute.images.parts import most_parts

_END_OF_IMAGE: Final = b"\xff\xd9"
_START_OF_SCAN: Final = b"\xff\xda"
# A marker that is not a stuffed zero, a restart marker or padding. There is no "+" after \xff:
# a run of padding would be searched again from each of its bytes.
_MARKER: Final = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
_FIRST_WITH_LENGTH: Final = 0xC0  # above it only start and end of image have no length
_START_OF_IMAGE: Final = 0xD8
_END: Final = 0xD9
# The bytes that may follow an image: image, extension, trailer, the end of the file, padding.
_GIF_BLOCKS: Final = frozenset({b",", b"!", b";", b"", b"\0"})
_BOX_HEADER: Final = 8
_AVIF_BOXES: Final = frozenset({b"ftyp", b"mdat", b"meta", b"moov"})
_BMP_INFO: Final = 14  # offsets in the file
_BMP_CORE_BITS: Final = 24
_BMP_BITS: Final = 28
_BMP_CORE_SIZE: Final = 12
_BMP_COLOURS: Final = 46
_BMP_PALETTE_BITS: Final = 8
_TIFF_PIECES: Final = ((273, 279), (324, 325))  # tags of offsets and sizes: of strips, of tiles
_TIFF_BITS_PER_SAMPLE: Final = 258
_TIFF_PLANAR_CONFIGURATION: Final = 284
_TIFF_SEPARATE_PLANES: Final = 2
_TIFF_POINTERS: Final = (34665, 34853)  # to EXIF and to GPS data

_Opened: TypeAlias = Any
"""A picture that Pillow opened. Pillow's type lacks the attributes of its plug-ins: fp, tag_v2."""


def is_decodable(image: _Opened) -> bool:
    """Whether Pillow decodes pictures of this kind, and converts them to RGB."""
    for tile in image.tile:
        left, top, right, bottom = tile.extents
        if right <= left or bottom <= top:  # the first frame of an animation may be empty
            return False
    return _is_convertible(image.mode)


@lru_cache(maxsize=64)
def _is_convertible(mode: str) -> bool:
    try:
        Image.new(mode, (1, 1)).convert("RGB")
    except ValueError:
        return False
    return True


def is_complete(file: BinaryIO, image: _Opened, size: int) -> bool:
    """Whether no data of an opened picture is missing."""
    check = _CHECKS.get(image.format or "")
    return check is None or check(file, image, size)


def is_complete_jpeg(file: BinaryIO, at: int, size: int, *, several_scans: bool) -> bool:
    """Whether the end marker follows the last scan of a JPEG file.

    The decoder stops a single scan at any marker, and fills in missing data. In a file of several
    scans it reads a length after each marker, and skips so many bytes. So a damaged byte can lead
    it past the end marker, and it refuses the file.

    It refuses a file that is cut before its end marker. Of the files of one scan that are cut right
    before the marker or within it, it reads a few in a hundred, by the bits of their last blocks.
    Only decoding the scan could tell which, so all of them are taken for incomplete.
    """
    if not several_scans:
        file.seek(max(at, size - len(_END_OF_IMAGE)))
        if file.read() == _END_OF_IMAGE:
            return True
    file.seek(0)
    data = file.read()
    for _ in range(most_parts(size)):
        marker = _MARKER.search(data, at)
        if marker is None:
            return False
        at = marker.end()
        code = marker[1][0]
        if code == _END:
            return True
        if code >= _FIRST_WITH_LENGTH and code != _START_OF_IMAGE:
            at += int.from_bytes(data[at : at + 2], "big")
    return False


def _jpeg(file: BinaryIO, image: _Opened, size: int) -> bool:
    at = image.fp.tell()  # Pillow has read up to the first scan
    length = 6 + 2 * image.layers  # the size of a scan header with all components
    file.seek(at - length - len(_START_OF_SCAN))
    all_components = file.read(4) == _START_OF_SCAN + length.to_bytes(2, "big")
    several_scans = "progressive" in image.info or not all_components
    return is_complete_jpeg(file, at, size, several_scans=several_scans)


def _mpo(file: BinaryIO, _image: _Opened, size: int) -> bool:
    """Whether the first picture of a file of several JPEG pictures is complete."""
    file.seek(0)
    return _jpeg(file, JpegImagePlugin.JpegImageFile(file), size)  # as MPO it is rewound


def _gif(file: BinaryIO, image: _Opened, size: int) -> bool:
    """Whether the first frame's data blocks end with a terminator that is followed by a block."""
    at = image.tile[0].offset
    file.seek(0)
    data = file.read()
    while at < size:
        length = data[at]
        at += 1 + length
        if length == 0:
            return data[at : at + 1] in _GIF_BLOCKS
    return False


def _bmp(file: BinaryIO, image: _Opened, size: int) -> bool:
    """Whether all rows are in the file, without the last row's padding; false if compressed."""
    file.seek(_BMP_INFO)
    header_size = int.from_bytes(file.read(4), "little")
    file.seek(_BMP_CORE_BITS if header_size == _BMP_CORE_SIZE else _BMP_BITS)
    bits = int.from_bytes(file.read(2), "little")
    file.seek(_BMP_COLOURS)
    colours = int.from_bytes(file.read(4), "little")
    if header_size != _BMP_CORE_SIZE and bits <= _BMP_PALETTE_BITS and colours > 1 << bits:
        return False
    for tile in image.tile:
        if tile.codec_name != "raw":
            return False
        stride = tile.args[1]
        if tile.offset + stride * (image.height - 1) + -(-image.width * bits // 8) > size:
            return False
    return True


def _tiff(_file: BinaryIO, image: _Opened, size: int) -> bool:
    """Whether all strips or tiles are in the file, and, if not compressed, hold all pixels."""
    tags = image.tag_v2
    bits: tuple[int, ...] = tags.get(_TIFF_BITS_PER_SAMPLE, (1,))
    in_planes = tags.get(_TIFF_PLANAR_CONFIGURATION) == _TIFF_SEPARATE_PLANES
    bits_of_tile = bits[0] if in_planes else sum(bits)
    raw_modes = {tile.args[0] for tile in image.tile if tile.codec_name == "raw"}
    if not (
        all(0 <= tags.get(pointer, 0) < size for pointer in _TIFF_POINTERS)
        and all(_is_row_readable(image.mode, raw_mode, bits_of_tile) for raw_mode in raw_modes)
    ):
        return False
    for offsets, counts in _TIFF_PIECES:
        if offsets in tags and counts in tags:
            pieces = list(zip(tags[offsets], tags[counts], strict=False))
            if any(offset + count > size for offset, count in pieces):
                return False
            if all(tile.codec_name == "raw" for tile in image.tile):
                wanted: int = image.width * image.height * sum(bits) // 8
                return wanted <= sum(int(count) for _, count in pieces)
            return True
    return False


@lru_cache(maxsize=256)
def _is_row_readable(mode: str, raw_mode: str, bits: int) -> bool:
    """Whether Pillow can unpack these samples, with at most `bits` bits for each pixel.

    For a picture in planes Pillow shortens `raw_mode` to one letter. The letter mostly stands for
    eight bits. It belongs to another mode if there is only one plane.
    """
    try:
        Image.frombytes(mode, (8, 1), bytes(bits), "raw", raw_mode, 0, 1)
    except ValueError:
        return False
    return True


def _avif(file: BinaryIO, _image: _Opened, size: int) -> bool:
    """Whether every top-level box that can hold a part of the picture is complete in the file."""
    at = 0
    for _ in range(most_parts(size)):
        file.seek(at)
        header = file.read(16)
        length, name = int.from_bytes(header[:4], "big"), header[4:8]
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        if length < _BOX_HEADER:  # a box up to the end of the file, the end itself, or no box
            return True
        at += length
        if at > size:
            return name not in _AVIF_BOXES
    return False


_CHECKS: Final[Mapping[str, Callable[[BinaryIO, _Opened, int], bool]]] = {
    "AVIF": _avif,
    "BMP": _bmp,
    "GIF": _gif,
    "JPEG": _jpeg,
    "MPO": _mpo,
    "TIFF": _tiff,
}
