"""Reads a video item from bytes, a file or a data URL, in any of the known containers."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import BinaryIO, Final

from mmroute.errors import InexactError, Reason
from mmroute.images.data_url import MediaSource, read_source
from mmroute.requests.checks import checked_uuid
from mmroute.requests.items import Video, VideoFile, VideoSize
from mmroute.videos import avi, matroska, mpegts
from mmroute.videos.header import not_predictable
from mmroute.videos.mp4 import FIRST_BOXES, read_mp4
from mmroute.videos.pictures import GIF, JPEG, PNG, read_frame_list, read_gif, read_still

_FRAME_LIST: Final = "data:video/jpeg;base64,"
DEFAULT_FRAMES: Final = 32  # the frames of a list that the engine reads by default
_HEAD: Final = 8  # the bytes of length and name of an MP4 file's first box


def read_video(
    source: MediaSource, *, uuid: str | None = None, max_frames: int = DEFAULT_FRAMES
) -> VideoFile:
    """Read a video, so that its token count and identity are known.

    Size, frame count and rate come from the file's header; nothing is decoded. The bytes are kept,
    because the engine computes the identity from them.

    Args:
        source: the bytes, data URL or path of an MP4, MOV, WebM, Matroska, AVI, MPEG-TS or GIF
            file, or of a PNG or JPEG picture, which is a video of one frame; or a list of frames,
            ``data:video/jpeg;base64,FRAME,FRAME,...``.
        uuid: the client's own name for the video.
        max_frames: the most frames that the engine reads from a list of frames; -1 for all.

    Raises:
        InexactError: `video_not_predictable` if the header does not tell what the engine reads;
            `item_unreadable` for a malformed data URL, or a file of fewer than 8 bytes;
            `invalid_request` if `source` is none of these, or `uuid` is not a string.
        OSError: the path cannot be opened.
    """
    uuid = checked_uuid(uuid)
    if isinstance(source, str) and source[: len(_FRAME_LIST)].lower() == _FRAME_LIST:
        size, data = read_frame_list(source[len(_FRAME_LIST) :], max_frames)
    else:
        data = read_source(source, Reason.ITEM_UNREADABLE)
        if len(data) < _HEAD:
            raise InexactError(Reason.ITEM_UNREADABLE, f"{len(data)} bytes are too few for a video")
        size = read_video_header(io.BytesIO(data))
    return VideoFile(replace(size, uuid=uuid), data)


def video_in(file: BinaryIO, uuid: str | None) -> Video:
    """The video in an open file; its bytes are kept if the file is an `io.BytesIO`."""
    size = replace(read_video_header(file), uuid=uuid)
    return VideoFile(size, file.getvalue()) if isinstance(file, io.BytesIO) else size


def read_video_header(file: BinaryIO) -> VideoSize:
    """Read the header of a video file."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(mpegts.PACKET + 1)
    if head[4:_HEAD] in FIRST_BOXES:
        return read_mp4(file, size)
    if head.startswith(avi.SIGNATURE):
        return avi.read_avi(file, size)
    if head.startswith(matroska.SIGNATURE):
        read = matroska.read_matroska
    elif head.startswith(GIF):
        read = read_gif
    elif head.startswith((PNG, JPEG)):
        read = read_still
    elif head[:: mpegts.PACKET] == mpegts.SIGNATURES:
        read = mpegts.read_mpegts
    else:
        # Its first bytes are not told: a link may name a file that is not the client's.
        raise not_predictable(
            "it is none of MP4, MOV, WebM, Matroska, AVI, MPEG-TS, GIF, PNG and JPEG"
        )
    file.seek(0)
    return read(file.read())
