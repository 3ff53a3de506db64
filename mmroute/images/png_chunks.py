"""The chunks of a PNG file after its picture, which Pillow reads only when it decodes.

Source: Pillow 13.0 ``PngImagePlugin.py``, ``load_read`` and ``load_end``.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final

from mmroute.images.parts import most_parts

_HEADER: Final = struct.Struct(">I4s")
CHUNK_HEADER_SIZE: Final = _HEADER.size
"""The number of bytes of a chunk before its data."""
_CRC_SIZE: Final = 4
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_MAX_KEY: Final = 81  # bytes of a note's name, a zero, and whether it is compressed
_IHDR: Final = struct.Struct(">IIBBBBB")
_IHDR_DATA: Final = 16
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_NAME: Final = re.compile(rb"[A-Za-z0-9_]{4}")
_PICTURE: Final = frozenset({b"IDAT", b"DDAT", b"fdAT"})
_AT_ONCE: Final = 1 << 16
_MAX_CHUNKS: Final = 100_000  # no encoder makes more
_MOST_TEXTS: Final = 5  # compressed ones and profiles, each of which may inflate to a megabyte
_MAX_INFLATED: Final = 8 << 20, 16  # bytes, and bytes for each of a file
_MAX_RATIO: Final = 1032  # the most bytes that one deflated byte gives: 258 for two bits
_COMPRESSED: Final = frozenset({b"zTXt", b"iCCP"})
# Chunks that must not stand after the picture. At a malformed one there the engine stops reading.
_MISPLACED: Final = frozenset({
    b"IHDR", b"PLTE", b"acTL", b"cHRM", b"fcTL", b"gAMA", b"iCCP", b"pHYs", b"sRGB",
})  # fmt: skip
_MAX_LATE: Final = 1000
# Chunks that can set orientation or transparency, also after the picture.
_ORIENTATION_OR_ALPHA: Final = frozenset({b"eXIf", b"iTXt", b"tEXt", b"tRNS", b"zTXt"})


@dataclass(frozen=True, slots=True)
class PngChunks:
    """The chunks after the header of a PNG file."""

    picture_complete: bool  # whether no byte of the compressed picture is missing
    # Whether the chunks after the picture can be read. If not, the engine keeps the picture and
    # ignores its orientation.
    readable: bool
    # The offset and length of the data of each IDAT chunk, in bytes.
    idat: tuple[tuple[int, int], ...]
    # The chunks after the picture that can set orientation or transparency, each with its header
    # and checksum.
    late_chunks: tuple[bytes, ...]


def read_chunks(
    file: BinaryIO, picture_start: int, size: int, *, num_bits: int, animated: bool
) -> PngChunks:
    """Walk the chunks from the first one that holds data of the picture."""
    late: list[bytes] = []
    idat: list[tuple[int, int]] = []
    at = picture_start - _HEADER.size
    compressed = 0
    in_picture = complete = readable = True
    for _ in range(min(_MAX_CHUNKS, most_parts(size))):
        file.seek(at)
        header = file.read(_HEADER.size)
        length, name = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        if not _NAME.fullmatch(name):  # also at the end of the file
            complete = not in_picture or _has_all_rows(file, idat, size)
            break
        if name == b"IEND" or (animated and name == b"fcTL"):
            break
        if name in (_MISPLACED if in_picture else _MISPLACED | _PICTURE):
            complete = False  # the engine stops at this chunk, or loses the chunks after it
            break
        in_picture &= name in _PICTURE
        fits = at + _HEADER.size + length <= size
        if not fits:
            complete, readable = not in_picture, False
            break
        if in_picture and length:
            idat.append((at + _HEADER.size, length))
            compressed += length
        elif name in _ORIENTATION_OR_ALPHA and len(late) < _MAX_LATE:
            late.append(_chunk(name, file.read(length)))
        at += _HEADER.size + length + _CRC_SIZE
    else:
        complete = readable = False
    complete = complete and num_bits <= 8 * _MAX_RATIO * compressed
    return PngChunks(complete, readable, tuple(idat), tuple(late))


def is_undamaged(file: BinaryIO, chunks: PngChunks) -> bool:
    """Whether the checksums of all IDAT chunks are right."""
    for start, length in chunks.idat:
        file.seek(start - len(b"IDAT"))
        if zlib.crc32(file.read(len(b"IDAT") + length)) != int.from_bytes(file.read(_CRC_SIZE)):
            return False
    return True


def bits_of_picture(file: BinaryIO) -> int:
    """The size of a file's picture before compression, in bits."""
    file.seek(_IHDR_DATA)
    width, height, depth, colour, *_ = _IHDR.unpack(file.read(_IHDR.size))
    bits: int = width * height * depth * _CHANNELS.get(colour, 1)
    return bits


def has_few_texts(file: BinaryIO, most: int) -> bool:
    """Whether so little is compressed before a PNG file's picture that it inflates fast.

    At most so many chunks are looked at. A file of another format has none.
    """
    file.seek(0)
    at = len(_SIGNATURE)
    if file.read(at) != _SIGNATURE:
        return True
    texts = 0
    for _ in range(most):
        file.seek(at)
        length, name = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
        texts += name in _COMPRESSED or (
            name == b"iTXt" and file.read(_MAX_KEY).partition(b"\0")[2][:1] == b"\1"
        )
        if name in _PICTURE or not _NAME.fullmatch(name):
            break
        at += _HEADER.size + length + _CRC_SIZE
    return texts <= _MOST_TEXTS


def _has_all_rows(file: BinaryIO, idat: list[tuple[int, int]], size: int) -> bool:
    """Whether the picture of a file without IEND is complete, by inflating its stream."""
    stream = zlib.decompressobj()
    rows = _bytes_of_rows(file)
    inflated, most = 0, _MAX_INFLATED[0] + _MAX_INFLATED[1] * size
    for start, length in idat:
        file.seek(start)
        for at in range(0, length, _AT_ONCE):
            data = file.read(min(_AT_ONCE, length - at))
            while data and not stream.eof:
                try:
                    inflated += len(stream.decompress(data, _AT_ONCE))
                except zlib.error:  # the engine keeps the rows of a broken picture that it has
                    return True
                if rows is not None and inflated >= rows:
                    return True
                if inflated > most:
                    return False
                data = stream.unconsumed_tail
    return stream.eof


def _bytes_of_rows(file: BinaryIO) -> int | None:
    """The size of a picture before compression, in bytes; None for an interlaced picture."""
    file.seek(_IHDR_DATA)
    width, height, depth, colour, _, _, interlaced = _IHDR.unpack(file.read(_IHDR.size))
    if interlaced or colour not in _CHANNELS:
        return None
    return int(height * (1 + -(-width * depth * _CHANNELS[colour] // 8)))


def with_late_chunks(head: bytes, late_chunks: tuple[bytes, ...]) -> bytes:
    """A PNG file without its picture, with the late chunks moved to before the picture."""
    return b"".join([head, *late_chunks, _chunk(b"IDAT", b""), _chunk(b"IEND", b"")])


def _chunk(name: bytes, data: bytes) -> bytes:
    return (
        _HEADER.pack(len(data), name) + data + zlib.crc32(data, zlib.crc32(name)).to_bytes(4, "big")
    )
