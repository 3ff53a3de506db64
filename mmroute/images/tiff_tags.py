"""The tags of a TIFF file, or of EXIF data, of whose values Pillow makes lists.

Source: TIFF 6.0, section 2; Pillow 13.0 ``TiffImagePlugin.py`` (`ImageFileDirectory_v2`).
"""

from __future__ import annotations

import io
import struct
import sys
from typing import Any, BinaryIO, Final

from mmroute.images.parts import most_parts

RAW_PROFILE: Final = "Raw profile type exif"
"""The name of a note of a PNG file that holds EXIF data in hexadecimal."""

_ORDERS: Final = {b"II": "<", b"MM": ">"}
_BIG: Final = (b"+\0", b"\0+")  # the versions of BigTIFF
_HEAD: Final = 16  # bytes
_MAX_TAGS: Final = 1 << 16
_POINTERS: Final = frozenset({0x8769, 0x8825, 0xA005})  # to EXIF, GPS and interoperability data
_MAX_DIRECTORIES: Final = 1 + len(_POINTERS)
_NO_LISTS: Final = frozenset({1, 2, 7})  # types whose values stay bytes
_FRACTIONS: Final = frozenset({5, 10})  # types
_OF_FRACTION: Final = 100  # a fraction takes so much longer than another number
_OF_PART: Final = 2  # numbers that take as long as a part


def has_few_values(file: BinaryIO, size: int) -> bool:
    """Whether the lists are no longer than are read fast; true for a file of another format.

    Args:
        file: a TIFF file, or EXIF data without their first six bytes.
        size: the bytes of the file that it is, or in which it is.
    """
    file.seek(0)
    head = file.read(_HEAD)
    order = _ORDERS.get(head[:2])
    if order is None or len(head) < _HEAD:
        return True
    is_big = head[2:4] in _BIG
    at = struct.unpack_from(order + ("Q" if is_big else "I"), head, 8 if is_big else 4)
    row = struct.Struct(order + ("HHQQ" if is_big else "HHII"))
    left = _OF_PART * most_parts(size)
    places = [*at]
    for place in places:  # those of further directories come to them
        file.seek(min(place, sys.maxsize))
        count = file.read(8 if is_big else 2)
        tags = min(int.from_bytes(count, "little" if order == "<" else "big"), _MAX_TAGS)
        rows = file.read(tags * row.size)
        for tag, kind, number, value in row.iter_unpack(rows[: len(rows) // row.size * row.size]):
            left -= 1
            if kind not in _NO_LISTS:
                left -= number * (_OF_FRACTION if kind in _FRACTIONS else 1)
            if tag in _POINTERS:
                places.append(value)
        if left < 0 or len(places) > _MAX_DIRECTORIES:
            return False
    return True


def exif_of(information: dict[Any, Any]) -> BinaryIO:
    """The EXIF data of a picture that Pillow opened, from its `info`; empty where it has none."""
    exif = information.get("exif")
    if exif is None:  # as Pillow reads a note of ImageMagick
        exif = bytes.fromhex("".join(information.get(RAW_PROFILE, "").split("\n")[3:]))
    return io.BytesIO(exif.removeprefix(b"Exif\0\0"))
