"""GIF: the images are counted, and the rate is that of their mean duration, in whole hundredths.

Source: W3C, "Graphics Interchange Format, version 89a"; FFmpeg 9 ``libavformat/gifdec.c``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from mmroute.requests.items import VideoSize
from mmroute.videos.header import not_predictable

SIGNATURES: Final = (b"GIF87a", b"GIF89a")
"""The first bytes of a file."""

_SCREEN: Final = struct.Struct("<HHBxx")
_IMAGE: Final = struct.Struct("<HHHHB")
_CONTROL: Final = struct.Struct("<BBHBB")
_EXTENSION, _PICTURE, _TRAILER = 0x21, 0x2C, 0x3B
_CONTROLS: Final = 0xF9
_OTHERS: Final = frozenset({0xFE, 0xFF})  # comments and application extensions
_HAS_COLORS: Final = 0x80
_CONTROL_LENGTH: Final = 4
_DEFAULT_DELAY: Final = 10  # FFmpeg's delay for a file without one


def read_gif(data: bytes) -> VideoSize:
    """The header of an animated or a still picture."""
    try:
        width, height, flags = _SCREEN.unpack_from(data, len(SIGNATURES[0]))
        delays = list(_delays(data, width, height, flags))
    except (struct.error, IndexError) as error:
        raise not_predictable("it ends within a block, cut short or broken") from error
    if not delays or not width or not height:
        raise not_predictable(f"{len(delays)} frames of {width}x{height}")
    given = [delay or _DEFAULT_DELAY for delay in delays if delay is not None]
    mean = sum(given) // len(delays)
    if len(delays) == 1 and not given:
        mean = 1  # one time unit
    if not mean:
        raise not_predictable("most of its frames have no duration")
    return VideoSize(width, height, len(delays), 100 / mean)


def _delays(data: bytes, width: int, height: int, flags: int) -> Iterator[int | None]:
    """The duration of each image in hundredths of a second; None if the file does not give it."""
    at = len(SIGNATURES[0]) + _SCREEN.size + _colors(flags)
    delay: int | None = None
    while data[at] != _TRAILER:
        block, label = data[at], data[at + 1]
        at += 1
        if block == _EXTENSION and label == _CONTROLS and delay is None:
            length, _, delay, _, end = _CONTROL.unpack_from(data, at + 1)
            if length != _CONTROL_LENGTH or end:
                raise not_predictable("a control block of another length")
            at += 1 + _CONTROL.size
        elif block == _EXTENSION and label in _OTHERS:
            at = _behind(data, at + 1)
        elif block == _PICTURE:
            left, top, across, down, own = _IMAGE.unpack_from(data, at)
            if not (0 < across <= width - left and 0 < down <= height - top):
                raise not_predictable("an image that is not within the picture")
            if not (flags | own) & _HAS_COLORS:
                raise not_predictable("an image without colors")
            at = _behind(data, at + _IMAGE.size + _colors(own) + 1)
            yield delay
            delay = None
        else:
            raise not_predictable(f"a block {block:#x} {label:#x}")
    if at + 1 != len(data):
        raise not_predictable(f"{len(data) - at - 1} bytes behind its end")


def _colors(flags: int) -> int:
    """The size of a color table, in bytes; 0 if there is none."""
    return 3 << (flags & 7) + 1 if flags & _HAS_COLORS else 0


def _behind(data: bytes, at: int) -> int:
    """The offset after a row of sub-blocks. Each begins with its length; the last one is empty."""
    while length := data[at]:
        at += 1 + length
    return at + 1
