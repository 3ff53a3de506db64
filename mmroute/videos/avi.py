"""AVI: frame count, rate and size from the header, and a count of the chunks of the frames.

Source: Microsoft's "AVI RIFF File Reference"; FFmpeg 8 ``libavformat/avidec.c``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Final

import numpy as np

from mmroute.images.parts import most_parts
from mmroute.requests.items import VideoSize
from mmroute.videos.end_of_file import counted, frames_wherever_sought, only
from mmroute.videos.header import not_predictable
from mmroute.videos.parameter_sets import CUT_WITHIN_A_FRAME, shows_cut_jpeg, shows_cut_mpeg4
from mmroute.videos.rationals import INT_MAX, reduced

SIGNATURE: Final = b"RIFF"
"""The first bytes of a file."""

_CHUNK: Final = struct.Struct("<4sI")
_KIND: Final = 4  # the bytes of a list's kind, behind its head
_STREAM: Final = struct.Struct("<4s16xIIII")  # kind, scale, rate, start, length
_PICTURE: Final = struct.Struct("<4xii4x4s")  # width, height, codec
_ENTRY: Final = struct.Struct("<4sI8x")  # of the index: chunk and flags
_SOUGHT: Final = 16, 15  # OpenCV seeks to the last key frame so many frames before the end
_KEY: Final = 0x10
_MAX_HEADER: Final = 1 << 16
_MAX_PARTS: Final = 1000  # at the top level
_MAX_INDEX: Final = 1 << 26
_MAX_BETWEEN: Final = 2000  # OpenCV looks at 4,096 packets for the next frame
_PACKET: Final = 1024  # bytes of sound that make at least one packet
_FRAMES: Final = (b"dc", b"db")
_JPEG: Final = b"MJPG"
_MPEG_4: Final = frozenset({b"FMP4", b"MP4V", b"XVID", b"DIVX", b"DX50"})
_MPEG_4_OF_MICROSOFT: Final = frozenset({b"MP42", b"MP43", b"DIV3"})
_CODECS: Final = _MPEG_4 | _MPEG_4_OF_MICROSOFT | {_JPEG, b"H264", b"X264", b"AVC1"}
_SHOWN_CUT: Final = {
    _JPEG: shows_cut_jpeg,
    **dict.fromkeys(_MPEG_4 | _MPEG_4_OF_MICROSOFT, shows_cut_mpeg4),
}
_PLACEHOLDER: Final = 8  # the most bytes of a frame of MPEG-4 that stands for no picture
_USUAL_FPS: Final = (5, 100)  # FFmpeg takes 41 frames to check other rates, and those of codecs


@dataclass(frozen=True, slots=True)
class _Stream:
    """The header of the video stream."""

    name: bytes  # the stream's number, as it begins the names of chunks
    streams: int  # the number of streams in the file
    frames: int  # the number of frames that the header tells
    fps: float  # the number of frames per second
    width: int  # the width in pixels
    height: int  # the height in pixels
    codec: bytes  # the four letters of the codec

    def has_frame(self, chunk: bytes) -> bool:
        """Whether a chunk of that name is a frame."""
        return chunk[:2] == self.name and chunk[2:] in _FRAMES


def read_avi(file: BinaryIO, size: int) -> VideoSize:
    """The header of the one video stream."""
    file.seek(0)
    head = file.read(12)
    declared = int.from_bytes(head[4:8], "little") + _CHUNK.size
    if head[8:] != b"AVI " or declared < size:
        raise not_predictable("a RIFF file that is no AVI, or has more than one part")
    parts = list(islice(_chunks(file, len(head), declared), _MAX_PARTS + 1))
    if len(parts) > _MAX_PARTS:
        raise not_predictable(f"more than {_MAX_PARTS} chunks at the top level")
    stream = _video_stream(_read(file, _only(parts, b"hdrl"), _MAX_HEADER))
    if size < declared:
        return _read_cut(file, parts[-1], stream, size)
    total, places = _frames(_chunks(file, *_only(parts, b"movi")), stream)
    index = _read(file, _only(parts, b"idx1"), _MAX_INDEX)
    keys = [
        flags & _KEY
        for name, flags in _ENTRY.iter_unpack(index[: len(index) // _ENTRY.size * _ENTRY.size])
        if stream.has_frame(name)
    ]
    if not 0 < stream.frames == total == len(keys) or not places:
        raise not_predictable(
            f"{total} frames, of which its header tells {stream.frames}, its index {len(keys)}"
        )
    if not keys[0]:
        raise not_predictable("its first frame is no key frame")
    sought = {
        max(n for n, place in enumerate(places) if not n or (keys[place] and place <= total - end))
        for end in _SOUGHT
    }
    if sought != {0} and len(places) < total and stream.codec != _JPEG:
        frames = frames_wherever_sought(np.array(places) / stream.fps, stream.fps, {total})
    else:
        # At the beginning OpenCV counts the frames, and elsewhere on from a frame's time.
        frames = only({counted(len(places) + (places[n] - n if n else 0), total) for n in sought})
    unreadable = max(frames - len(places), 0)
    return VideoSize(stream.width, stream.height, frames, stream.fps, unreadable=unreadable)


def _read_cut(
    file: BinaryIO, last: tuple[bytes, int, int], stream: _Stream, size: int
) -> VideoSize:
    """A file that ends before its index, of which OpenCV counts the frames from the beginning."""
    name, start, end = last
    if name != b"movi" or end <= size:
        raise not_predictable("it is cut within its header or its index")
    chunks = list(islice(_chunks(file, start, end), most_parts(size) // 2 + 1))
    if len(chunks) > most_parts(size) // 2:
        raise not_predictable(f"it is cut, and has more than {most_parts(size) // 2} chunks")
    cut = chunks.pop() if chunks and chunks[-1][2] > size else None
    total, places = _frames(chunks, stream)
    if len(places) < total and not _begins_at_once(chunks, stream):
        raise not_predictable("it is cut, and has empty frames")
    if not places:
        raise not_predictable("it is cut before the end of its first frame")
    total = len(places)
    if cut and stream.has_frame(cut[0]):
        if stream.codec not in _SHOWN_CUT:
            raise not_predictable(CUT_WITHIN_A_FRAME)
        total += _SHOWN_CUT[stream.codec](_read(file, (cut[1], size), _MAX_INDEX))
    frames = counted(total, stream.frames)
    unreadable = max(frames - total, 0)
    return VideoSize(stream.width, stream.height, frames, stream.fps, unreadable=unreadable)


def _begins_at_once(chunks: list[tuple[bytes, int, int]], stream: _Stream) -> bool:
    """Whether FFmpeg knows all streams by the time of the second frame that is not empty.

    It makes an index of the frames that it reads until then, and OpenCV seeks to one of them.

    Source: FFmpeg 9 ``libavformat/demux.c`` (`tb_unreliable`) and ``avidec.c`` (`avi_sync`).
    """
    slowest, fastest = _USUAL_FPS
    if stream.codec not in _MPEG_4_OF_MICROSOFT | {_JPEG} or not slowest <= stream.fps <= fastest:
        return False
    heard: set[bytes] = set()
    for name, start, end in chunks:
        if start < end and stream.has_frame(name) and stream.name in heard:
            break
        if start < end:
            heard.add(name[:2])
    return len(heard) == stream.streams


def _video_stream(header: bytes) -> _Stream:
    """The one video stream that the list ``hdrl`` describes."""
    streams = [header[start:end] for name, start, end in _within(header) if name == b"strl"]
    found = []
    for number, stream in enumerate(streams):
        parts = {name: stream[start:end] for name, start, end in _within(stream)}
        if parts.get(b"strh", b"")[:4] == b"vids":
            found.append((number, parts))
    if len(found) != 1:
        raise not_predictable(f"{len(found)} video streams")
    ((number, parts),) = found
    try:
        _, scale, rate, start, frames = _STREAM.unpack_from(parts[b"strh"])
        width, height, codec = _PICTURE.unpack_from(parts.get(b"strf", b""))
    except struct.error as error:
        raise not_predictable("the header of its video is too short") from error
    if codec.upper() not in _CODECS:
        raise not_predictable(f"codec {codec!r}")
    if not scale or not rate or start or width <= 0 or not height:
        raise not_predictable(f"{width}x{height} at {rate}/{scale}, from frame {start}")
    numerator, denominator = reduced(rate, scale, INT_MAX)
    fps = numerator / denominator
    return _Stream(b"%02d" % number, len(streams), frames, fps, width, abs(height), codec.upper())


def _frames(chunks: Iterable[tuple[bytes, int, int]], stream: _Stream) -> tuple[int, list[int]]:
    """The number of frames in the list ``movi``, and the numbers of those that are not empty."""
    total = others = 0
    places: list[int] = []
    for name, start, end in chunks:
        if not stream.has_frame(name):
            others += 1 + (end - start) // _PACKET
            continue
        if others > _MAX_BETWEEN:
            break
        if start < end:
            places.append(total)
            if stream.codec in _MPEG_4 and end - start <= _PLACEHOLDER:
                raise not_predictable("it has frames that stand for no picture")
        total, others = total + 1, 0
    if others > _MAX_BETWEEN:
        raise not_predictable("other streams have too many packets between its frames")
    return total, places


def _within(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    return _chunks(io.BytesIO(data), 0, len(data))


def _chunks(file: BinaryIO, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The name, start and end of each chunk; for a list its kind, and where its own chunks are."""
    most = most_parts(end)
    for _ in range(most):
        if at >= end:
            return
        file.seek(at)
        head = file.read(_CHUNK.size + _KIND)
        if not head:  # of a file that is cut
            return
        if len(head) < _CHUNK.size:
            raise not_predictable("it ends within the head of a chunk")
        name, length = _CHUNK.unpack_from(head)
        start = at + _CHUNK.size
        at = start + length + length % 2
        if start + length > end:
            raise not_predictable(f"it ends before its chunk {name!r}, cut short or broken")
        if name == b"LIST":
            yield head[_CHUNK.size :], start + _KIND, start + length
        else:
            yield name, start, start + length
    raise not_predictable(f"more than {most} chunks in {end} bytes")


def _only(parts: list[tuple[bytes, int, int]], name: bytes) -> tuple[int, int]:
    found = [(start, end) for part, start, end in parts if part == name]
    if len(found) != 1:
        raise not_predictable(f"{len(found)} chunks {name.decode()!r} where one is needed")
    return found[0]


def _read(file: BinaryIO, place: tuple[int, int], most: int) -> bytes:
    start, end = place
    if end - start > most:
        raise not_predictable(f"a chunk of {end - start} bytes")
    file.seek(start)
    return file.read(end - start)
