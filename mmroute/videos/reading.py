"""From a video file to its header, whatever the container."""

from __future__ import annotations

import io
from typing import BinaryIO, Final

from mmroute.videos.header import VideoHeader, not_predictable
from mmroute.videos.matroska import SIGNATURE, read_matroska
from mmroute.videos.mp4 import FIRST_BOXES, read_mp4

__all__ = ["read_video_header"]

_HEAD: Final = 8  # length and name of an MP4 file's first box


def read_video_header(file: BinaryIO) -> VideoHeader:
    """What a video file's header says, without decoding anything.

    Args:
        file: seekable, at any position. Only its header is read, of WebM and Matroska all of it.

    Raises:
        InexactError: `video_not_predictable`.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD)
    if head[4:] in FIRST_BOXES:
        return read_mp4(file, size)
    if head.startswith(SIGNATURE):
        file.seek(0)
        return read_matroska(file.read())
    raise not_predictable(f"it is none of MP4, MOV, WebM and Matroska, but begins with {head!r}")
