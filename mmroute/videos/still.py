"""Still pictures in the place of videos: one frame, at FFmpeg's rate for pictures.

Source: FFmpeg 8 ``libavformat/img2dec.c`` (`png_pipe`, `jpeg_pipe`).
"""

from __future__ import annotations

import io
from typing import Final

from mmroute.images.header import read_header
from mmroute.requests.items import VideoSize
from mmroute.videos.cut_frames import start_of_scan
from mmroute.videos.header import not_predictable

PNG: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"

_FPS: Final = 25.0
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
    return VideoSize(width, height, 1, _FPS)
