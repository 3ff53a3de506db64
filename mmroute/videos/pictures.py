"""GIF, still pictures and lists of JPEG frames in the place of videos.

Source: W3C, "Graphics Interchange Format, version 89a"; FFmpeg 9 ``libavformat/gifdec.c``; FFmpeg 8
``libavformat/img2dec.c`` (`png_pipe`, `jpeg_pipe`); vLLM ``multimodal/media/video.py``
(`VideoMediaIO.load_base64`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Final

import pybase64

from mmroute.errors import InexactError, Reason
from mmroute.images.header import read_header
from mmroute.requests.items import VideoSize
from mmroute.videos.header import not_predictable
from mmroute.videos.parameter_sets import start_of_scan

GIF: Final = (b"GIF87a", b"GIF89a")
PNG: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"
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
        width, height, flags = _SCREEN.unpack_from(data, len(GIF[0]))
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
    at = len(GIF[0]) + _SCREEN.size + _colors(flags)
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


_STILL_FPS: Final = 25.0
_PNG_END: Final = b"\0\0\0\0IEND\xae\x42\x60\x82"
_ANIMATED: Final = b"acTL"
_JPEG_END: Final = b"\xff\xd9"
_CONVERTED: Final = frozenset({"CMYK"})  # a mode of JPEG that OpenCV does not convert


def read_still(data: bytes) -> VideoSize:
    """A picture as a video of one frame."""
    header = read_header(io.BytesIO(data))
    if data.startswith(PNG):
        end = data.find(_PNG_END) + len(_PNG_END)
        if _ANIMATED in data:
            raise not_predictable("an animated PNG")
    else:
        end = data.find(_JPEG_END, start_of_scan(data)) + len(_JPEG_END)
        if header.mode in _CONVERTED:
            raise not_predictable(f"a JPEG of mode {header.mode}")
    if end != len(data):
        raise not_predictable(f"a picture that ends at byte {end} of {len(data)}")
    width, height = header.stored
    return VideoSize(width, height, 1, _STILL_FPS)


_LIST_FPS: Final = 1.0
_FEW_FRAMES: Final = 300  # that are read of a list, and one more for so many characters
_FRAME: Final = 2000


def read_frame_list(text: str, most: int) -> tuple[VideoSize, bytes]:
    """The size of the video that the engine reads from a list of frames, and the list as bytes."""
    count = text.count(",") + 1
    most = count if most < 0 else min(most, count)
    if most > (few := _FEW_FRAMES + len(text) // _FRAME):
        raise not_predictable(f"more than {few} frames in a list of {len(text)} characters")
    frames = text.split(",", most)[:most]
    sizes = set()
    for frame in frames:
        try:
            data = pybase64.b64decode(frame, validate=True)
        except ValueError as error:
            raise _unreadable(f"a frame is not strict base64 ({error})") from error
        sizes.add(read_header(io.BytesIO(data)).upright)
    if len(sizes) != 1:
        raise _unreadable(f"its frames have {len(sizes)} sizes")
    ((width, height),) = sizes
    return VideoSize(width, height, len(frames), _LIST_FPS, frame_list=True), text.encode()


def _unreadable(why: str) -> InexactError:
    return InexactError(Reason.ITEM_UNREADABLE, f"the engine cannot read the list of frames: {why}")
