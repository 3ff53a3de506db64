"""WebM and Matroska: frame count, rate and size, from the header and the heads of all blocks.

The files have no frame count. FFmpeg computes one from the durations of the file and of a frame.
The engine uses it, unless it finds at the end of the file that frames are missing. So the header
alone does not decide: the blocks are counted as well, without reading their content.

Source: RFC 8794 (EBML), RFC 9559 (Matroska); FFmpeg 7 ``libavformat/matroskadec.c``; vLLM
``multimodal/video_decoders/opencv.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from mmroute.images.parts import most_parts
from mmroute.requests.items import VideoSize
from mmroute.videos.end_of_file import frames_wherever_sought
from mmroute.videos.estimated_rate import ANALYZED_FRAMES, estimated_rate
from mmroute.videos.header import not_predictable
from mmroute.videos.rationals import reduced

SIGNATURE: Final = b"\x1a\x45\xdf\xa3"
"""The first bytes of a file."""

_EBML: Final = 0x1A45DFA3
# The versions that a reader must have, and the longest IDs and sizes: the most that FFmpeg reads.
_VERSIONS: Final = {0x42F7: 1, 0x42F2: 4, 0x42F3: 8, 0x4285: 3}
_SEGMENT: Final = 0x18538067
_INFO: Final = 0x1549A966
_TIME_SCALE: Final = 0x2AD7B1
_DURATION: Final = 0x4489
_TRACKS: Final = 0x1654AE6B
_TRACK: Final = 0xAE
_TRACK_TYPE: Final = 0x83
_CODEC: Final = 0x86
_FRAME_DURATION: Final = 0x23E383
_VIDEO: Final = 0xE0
_WIDTH: Final = 0xB0
_HEIGHT: Final = 0xBA
_PROJECTION: Final = 0x7670
_TRACK_NUMBER: Final = 0xD7
_CLUSTER: Final = 0x1F43B675
_TIMESTAMP: Final = 0xE7
_SIMPLE_BLOCK: Final = 0xA3
_BLOCK_GROUP: Final = 0xA0
_BLOCK: Final = 0xA1
_REFERENCE: Final = 0xFB
_BLOCK_DURATION: Final = 0x9B
_ATTACHMENTS: Final = 0x1941A469
_TAGS: Final = 0x1254C367
_TAG: Final = 0x7373
_OF_SEGMENTS: Final = frozenset({_INFO, _TRACKS, _ATTACHMENTS})  # that are read
_FEW: Final = 2  # from which an element is not the only one
_MAX_CHILDREN: Final = 100  # of the tracks, and of each track

_CODECS: Final = frozenset(
    {b"V_VP8", b"V_VP9", b"V_MPEG4/ISO/AVC", b"V_MPEGH/ISO/HEVC", b"V_MJPEG", b"V_MPEG4/ISO/ASP"}
)
_WITHOUT_RATE: Final = frozenset({b"V_VP8", b"V_VP9"})  # their frames tell none
_VIDEO_TRACK: Final = 1
# OpenCV looks at up to 4,096 packets for the next frame. A decoder holds back up to 20 frames, the
# last ones until the end of the file.
_MAX_BETWEEN: Final = 100
_MAX_BEHIND: Final = 2000
_HIDDEN: Final = 0x08  # this and the next two are flags of a block
_LACED: Final = 0x06
_KEY: Final = 0x80
_LASTS: Final = 0x100  # a flag of ours: the block tells its duration
_VP8_SHOWN: Final = 0x10  # a flag in a frame's first byte
_MAX_FRAMES: Final = 2_000_000
_MAX_TIME: Final = 1 << 62
_MAX_ID: Final = 4
_MAX_SIZE: Final = 8
_MAX_RATE: Final = 30_000  # FFmpeg's limit for numerator and denominator
# FFmpeg looks for a rate in 5,000,000 bytes, and in 5 seconds or 30 frames if these are longer.
_MAX_ANALYZED: Final = 4_900_000
_MAX_ANALYZED_SECONDS: Final = 4.9
_MIN_ANALYZED: Final = 30
_SHORT_UNIT: Final = 0.0005  # seconds of a time unit; with a shorter one it takes fewer frames
_NANOSECONDS: Final = 10**9
_MICROSECONDS: Final = 10**6
_FLOATS: Final = {4: ">f", 8: ">d"}
_BLOCK_HEAD: Final = 4  # track, time, flags
_TIME_AND_FLAGS: Final = struct.Struct(">hB")

_Elements: TypeAlias = dict[int, list[memoryview]]


def read_matroska(data: bytes) -> VideoSize:
    """The header of the one video track."""
    segment, content = _segment(data)
    information = _children(_only(segment, _INFO))
    tracks = [_children(track) for track in _children(_only(segment, _TRACKS)).get(_TRACK, [])]
    track = _video_track(tracks)
    if _ATTACHMENTS in segment:
        raise not_predictable("it has attachments, which may be pictures, that is, video tracks")
    codec = bytes(_only(track, _CODEC)).rstrip(b"\0")
    if codec not in _CODECS:
        raise not_predictable(f"codec {codec!r}")
    picture = _children(_only(track, _VIDEO))
    width, height = _unsigned(picture, _WIDTH), _unsigned(picture, _HEIGHT)
    if _PROJECTION in picture or not width or not height:
        raise not_predictable(f"a picture of {width}x{height}, projected or turned")
    scale = _unsigned(information, _TIME_SCALE) if _TIME_SCALE in information else _MICROSECONDS
    if not 0 < scale <= _NANOSECONDS:
        raise not_predictable(f"a time unit of {scale} ns")
    number = _unsigned(track, _TRACK_NUMBER)
    numbers = {_unsigned(each, _TRACK_NUMBER) for each in tracks}
    if len(numbers) < len(tracks):
        raise not_predictable("several tracks of one number")
    times = _times(content, number, numbers, codec == b"V_VP8")
    if _FRAME_DURATION in track:
        fps = _rate(track)
    elif codec in _WITHOUT_RATE:
        fps = _estimated_rate(content, number, len(tracks), scale)
    else:
        raise not_predictable("its header does not tell the rate of its frames")
    total = len(times)
    claimed = _claimed(information, scale, fps)
    if not claimed:  # the engine counts the packets
        return VideoSize(width, height, total, fps)
    seconds = (np.sort(times) - times[0]) * (scale / _NANOSECONDS)
    num_frames = frames_wherever_sought(seconds, fps, {claimed})
    return VideoSize(width, height, num_frames, fps, unreadable=max(num_frames - total, 0))


def _video_track(tracks: list[_Elements]) -> _Elements:
    videos = [track for track in tracks if _unsigned(track, _TRACK_TYPE) == _VIDEO_TRACK]
    if len(videos) != 1:
        raise not_predictable(f"{len(videos)} video tracks")
    return videos[0]


def _estimated_rate(content: memoryview, number: int, tracks: int, scale: int) -> float:
    """The rate that FFmpeg finds in the first frames."""
    times: list[int] = []
    heard, read = set(), 0
    for time, flags, block in _blocks(content):
        heard.add(block[0])
        read += len(block)
        if block[0] & 0x7F != number:
            continue
        if flags & _LASTS:
            raise not_predictable("only some of its frames tell how long they last")
        times.append(time)
        if len(times) == ANALYZED_FRAMES:
            break
    unit = Fraction(scale, _NANOSECONDS)
    rates = {estimated_rate(times, unit)}
    if (times[-1] - times[0]) * unit > _MAX_ANALYZED_SECONDS:
        rates |= {estimated_rate(times[:n], unit) for n in range(_MIN_ANALYZED, len(times))}
    ascending = sorted({*times}) == times
    certain = len(rates) == 1 and ascending and unit > _SHORT_UNIT
    if not certain or len(heard) != tracks or read > _MAX_ANALYZED:
        raise not_predictable("its header does not tell its rate, nor do its first frames")
    return rates.pop()


def _rate(track: _Elements) -> float:
    frame_duration = _unsigned(track, _FRAME_DURATION)
    if 0 < frame_duration < 1 << 62:
        numerator, denominator = reduced(_NANOSECONDS, frame_duration, _MAX_RATE)
        if numerator and denominator:
            return numerator / denominator
    raise not_predictable(f"frames of {frame_duration} ns")


def _claimed(information: _Elements, scale: int, fps: float) -> int:
    """The number of frames that OpenCV computes from the duration of the file; 0 without one."""
    if _DURATION not in information:
        return 0
    duration = _float(information, _DURATION)
    if not 0 < duration < 1 << 32:
        raise not_predictable(f"a duration of {duration}")
    microseconds = int(duration * scale * 1000 / _MICROSECONDS)
    return int(microseconds / _MICROSECONDS * fps + 0.5)


def _segment(data: bytes) -> tuple[_Elements, memoryview]:
    """The first elements of the segment, of each ID that is read; and its content."""
    view = memoryview(data)
    name, start, at = _element(view, 0)
    if name != _EBML:
        raise not_predictable("it does not begin with an EBML header")
    header = _children(view[start:at])
    for name, most in _VERSIONS.items():
        if name in header and _unsigned(header, name) > most:
            raise not_predictable("it needs a later version of its format than FFmpeg reads")
    name, start, end = _element(view, at, may_be_cut=True)
    if name != _SEGMENT or end < len(data):
        raise not_predictable("its segment does not end with the file")
    elements: _Elements = {}
    for name, content in _flattened(view[start:], skip_clusters=True):
        if name == _TAGS:  # FFmpeg reads them, and no further where they are broken
            for tag in _children(content).get(_TAG, ()):
                _children(tag)
        if name in _OF_SEGMENTS and len(elements.get(name, ())) < _FEW:
            elements.setdefault(name, []).append(content)
    return elements, view[start:]


def _flattened(segment: memoryview, *, skip_clusters: bool) -> Iterator[tuple[int, memoryview]]:
    """The ID and content of each whole element; a cluster is empty, and its children follow it."""
    at = 0
    left = most_parts(len(segment))
    while at < len(segment):
        left -= 1
        if left < 0:
            raise not_predictable(f"more elements than are read of {len(segment)} bytes")
        name, start, at = _element(segment, at, may_be_cut=True)
        if name == _CLUSTER:
            yield name, segment[:0]
            at = at if skip_clusters and at <= len(segment) else start
        elif at <= len(segment):
            yield name, segment[start:at]


def _times(segment: memoryview, track: int, tracks: set[int], is_vp8: bool) -> list[int]:
    """The times at which the track's frames are shown, in the segment's units."""
    times: list[int] = []
    others = 0
    for time, flags, content in _blocks(segment):
        number = content[0] & 0x7F if content[0] & 0x80 else -1
        if number != track:
            if number not in tracks:  # FFmpeg reads no further
                raise not_predictable(f"a frame of track {number}, which it does not have")
            others += 1
            continue
        if others > _MAX_BETWEEN:
            raise not_predictable("other tracks have too many packets between its frames")
        others = 0
        if flags & (_HIDDEN | _LACED) or (is_vp8 and not content[4] & _VP8_SHOWN):
            raise not_predictable("it has frames that are not shown")
        if not times and not flags & _KEY:
            raise not_predictable("its first frame is no key frame")
        times.append(time)
        if len(times) > _MAX_FRAMES:
            raise not_predictable(f"more than {_MAX_FRAMES} frames")
    if not times or others > _MAX_BEHIND:
        raise not_predictable(f"{len(times)} frames, and {others} other packets behind them")
    if times[0] != min(times):
        raise not_predictable("frames are shown before its first key frame")
    return times


def _blocks(segment: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """The time, flags and content of each block, in the order of the file."""
    base, left = 0, most_parts(len(segment)) // 2
    for name, content in _flattened(segment, skip_clusters=False):
        if name in (_CLUSTER, _TIMESTAMP):
            base = _integer(content)
            if base > _MAX_TIME:
                raise not_predictable(f"a time of {base} units")
        if name not in (_SIMPLE_BLOCK, _BLOCK_GROUP):
            continue
        block, key = content, 0
        if name == _BLOCK_GROUP:
            group = _children(content)
            left -= sum(map(len, group.values()))
            if left < 0:
                raise not_predictable(f"more groups than are read of {len(segment)} bytes")
            block, key = _only(group, _BLOCK), 0 if _REFERENCE in group else _KEY
            key |= _LASTS if _BLOCK_DURATION in group else 0
        if len(block) <= _BLOCK_HEAD:
            raise not_predictable("an empty frame")
        time, flags = _TIME_AND_FLAGS.unpack_from(block, 1)
        yield base + time, flags | key, block


def _children(data: memoryview) -> _Elements:
    children: _Elements = {}
    at = 0
    for _ in range(_MAX_CHILDREN):
        if at >= len(data):
            return children
        name, start, at = _element(data, at)
        children.setdefault(name, []).append(data[start:at])
    raise not_predictable(f"more than {_MAX_CHILDREN} elements in one")


def _element(data: memoryview, at: int, *, may_be_cut: bool = False) -> tuple[int, int, int]:
    """The ID, start of the content, and end of the element at an offset."""
    beyond = len(data) + 1
    try:
        width = 9 - data[at].bit_length()
        start = at + width
        length_width = 9 - data[start].bit_length()
    except IndexError as error:
        if may_be_cut:
            return 0, beyond, beyond
        raise not_predictable("it ends within an element, cut short or broken") from error
    if width > _MAX_ID or length_width > _MAX_SIZE:
        raise not_predictable("an element without an ID or a length")
    name = int.from_bytes(data[at:start])
    at = start + length_width
    unknown = (1 << 7 * length_width) - 1
    length = int.from_bytes(data[start:at]) & unknown
    if length == unknown:
        if name not in (_SEGMENT, _CLUSTER):
            raise not_predictable("an element of unknown length")
        return name, at, beyond
    if length > len(data) - at:
        if may_be_cut:
            return name, at, beyond
        raise not_predictable("it ends within an element, cut short or broken")
    return name, at, at + length


def _only(elements: _Elements, name: int) -> memoryview:
    found = elements.get(name, [])
    if len(found) != 1:
        raise not_predictable(f"{len(found)} elements {name:X} where one is needed")
    return found[0]


def _unsigned(elements: _Elements, name: int) -> int:
    return _integer(_only(elements, name))


def _integer(data: memoryview) -> int:
    if len(data) > _MAX_SIZE:
        raise not_predictable(f"an integer of {len(data)} bytes")
    return int.from_bytes(data)


def _float(elements: _Elements, name: int) -> float:
    data = _only(elements, name)
    if len(data) not in _FLOATS:
        raise not_predictable(f"a number of {len(data)} bytes")
    value: float = struct.unpack(_FLOATS[len(data)], data)[0]
    return value
