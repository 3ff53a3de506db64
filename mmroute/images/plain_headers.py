"""The headers of JPEG, PNG and WebP files as most encoders write them, read in a few steps.

Source: Pillow 13.0 ``JpegImagePlugin.py``, ``PngImagePlugin.py`` and ``WebPImagePlugin.py``, as far
as these parts go; libwebp 1.6 ``src/dec/vp8_dec.c`` (`VP8GetInfo`).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

PLAIN_BYTES: Final = 2048
"""The number of bytes that hold the header of such a file."""

_MAX_PIXELS: Final = 1 << 26  # for more pixels Pillow warns or refuses the picture
_JPEG: Final = b"\xff\xd8\xff"
_PART: Final = struct.Struct(">HH")
_PROGRESSIVE: Final = b"\xff\xc2"
_FRAMES: Final = (b"\xff\xc0\0\x11\x08", _PROGRESSIVE + b"\0\x11\x08")  # of eight bits
_JFIF: Final = b"\xff\xe0\0\x10JFIF\0"  # without a thumbnail
_ONE_TABLE: Final = (b"\xff\xdb\0\x43\0", b"\xff\xdb\0\x43\x01")  # an eight-bit quantization table
_SCAN: Final = b"\xff\xda"
_WHOLE_SCAN: Final = _SCAN + b"\0\x0c"  # of three components
_SKIPPED: Final = (b"\xff\xc4", b"\xff\xdd", b"\xff\xfe")  # Huffman tables, restarts, a comment
_PLAIN: Final = (_JFIF, *_ONE_TABLE, *_SKIPPED)
_THREE: Final = 3
_PNG: Final = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_IHDR: Final = struct.Struct(">IIBBBBBI")
_FRAME: Final = struct.Struct(">HHB")
_EIGHT_BITS: Final = 8
_RGB, _RGBA = 2, 6
_FIRST_DATA: Final = 41  # where the data of the second chunk begins
_WEBP: Final = struct.Struct("<4sI8sI3s3sHH")  # up to the size of the frame
_ONE_FRAME: Final = (b"RIFF", b"WEBPVP8 ", b"\x9d\x01\x2a")
_BEFORE_CHUNK, _BEFORE_FRAME = 8, 12  # bytes that a size does not count, and bytes before the frame
_LAST_VERSION: Final = 3
_SIDE: Final = (1 << 14) - 1  # the other bits are a scale, which decoders ignore
_CHUNK: Final = struct.Struct(">I4s")
_CHUNK_MORE: Final = 12  # the bytes of a chunk's length, name and checksum
_QUICK_CHUNKS: Final = frozenset({
    b"IHDR", b"PLTE", b"IDAT", b"sRGB", b"gAMA", b"cHRM", b"pHYs", b"sBIT", b"bKGD", b"tIME",
})  # fmt: skip
_MANY_CHUNKS: Final = 1024
_END_OF_JPEG: Final = b"\xff\xd9"
_JPEG_HEADER: Final = 1 << 16
_MANY_MARKERS: Final = 1024


class PlainHeader(NamedTuple):
    """The facts in the header of such a file."""

    width: int  # the picture's width in pixels
    height: int  # the picture's height in pixels
    transparent: bool  # whether the picture has an alpha channel
    picture: int  # the offset of the picture's data in the file, in bytes
    several_scans: bool = False  # whether a JPEG file has more than one scan of its picture


def plain_jpeg(beginning: bytes) -> PlainHeader | None:
    """The header of a JPEG file with three components, no EXIF and no profile; else None."""
    if not beginning.startswith(_JPEG):
        return None
    frame, progressive = None, False
    at = 2
    while at + _PART.size <= len(beginning):
        start, at = at, at + 2 + _PART.unpack_from(beginning, at)[1]
        if not start + _PART.size <= at <= len(beginning):
            break
        if beginning.startswith(_SCAN, start):
            if frame is None:
                return None
            several_scans = progressive or not beginning.startswith(_WHOLE_SCAN, start)
            return PlainHeader(*frame, False, at, several_scans)
        if frame is None and beginning.startswith(_FRAMES, start):
            height, width, components = _FRAME.unpack_from(beginning, start + len(_FRAMES[0]))
            if components != _THREE or not 0 < width * height <= _MAX_PIXELS:
                break
            frame = (width, height)
            progressive = beginning.startswith(_PROGRESSIVE, start)
        elif not beginning.startswith(_PLAIN, start):
            break
    return None


def plain_png(beginning: bytes) -> PlainHeader | None:
    """The header of a PNG file with eight bits in red, green, blue and perhaps alpha; else None."""
    if not beginning.startswith(_PNG) or beginning[_FIRST_DATA - 4 : _FIRST_DATA] != b"IDAT":
        return None
    width, height, bits, colours, *methods, checksum = _IHDR.unpack_from(beginning, len(_PNG))
    described = beginning[len(_PNG) - 4 : len(_PNG) + 13]
    plain = bits == _EIGHT_BITS and colours in (_RGB, _RGBA) and not any(methods)
    if not plain or zlib.crc32(described) != checksum or not 0 < width * height <= _MAX_PIXELS:
        return None
    return PlainHeader(width, height, transparent=colours == _RGBA, picture=_FIRST_DATA)


def plain_webp(beginning: bytes, size: int) -> PlainHeader | None:
    """The header of a lossy WebP file of one frame, without alpha, EXIF or profile; else None."""
    if len(beginning) < _WEBP.size:
        return None
    riff, rest, kind, length, tag, code, width, height = _WEBP.unpack_from(beginning)
    whole = rest + _BEFORE_CHUNK == size and length + length % 2 + _BEFORE_FRAME == rest
    if (riff, kind, code) != _ONE_FRAME or not whole:
        return None
    bits = int.from_bytes(tag, "little")
    depends, version, shown, first_part = bits & 1, bits >> 1 & 7, bits >> 4 & 1, bits >> 5
    if depends or version > _LAST_VERSION or not shown or first_part >= length:
        return None
    width, height = width & _SIDE, height & _SIDE
    if not 0 < width * height <= _MAX_PIXELS:
        return None
    return PlainHeader(width, height, transparent=False, picture=_WEBP.size)


def is_quick(data: bytes) -> bool:
    """Whether a file's header is sure to be read in few steps.

    It is for a JPEG file with its end marker and few other markers, and for a plain WebP file. It
    is for a PNG file of few chunks, if only the picture is compressed. Other files may have a part
    in every four bytes, or inflate to a thousand times their size.
    """
    if data.startswith(_JPEG):
        few = data[:_JPEG_HEADER].count(b"\xff") <= _MANY_MARKERS
        return few and data.endswith(_END_OF_JPEG)
    if plain_webp(data, len(data)) is not None:
        return True
    at = len(_PNG) - 8
    for _ in range(_MANY_CHUNKS if data.startswith(_PNG) else 0):
        if at + _CHUNK_MORE > len(data):
            return False
        length, name = _CHUNK.unpack_from(data, at)
        if name == b"IEND":
            return True
        if name not in _QUICK_CHUNKS:
            return False
        at += _CHUNK_MORE + length
    return False
