"""MPEG transport streams: frame count, rate and size, from the heads of all packets.

Source: ISO/IEC 13818-1; FFmpeg 9 ``libavformat/demux.c`` (`estimate_timings_from_pts`,
`update_stream_timings`), ``libavformat/mpegts.c``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Final

import numpy as np

from mmroute.images.parts import most_parts
from mmroute.requests.items import VideoSize
from mmroute.videos.end_of_file import frames_wherever_sought
from mmroute.videos.estimated_rate import estimated_rate
from mmroute.videos.header import not_predictable
from mmroute.videos.parameter_sets import Pictures, h264_pictures, hevc_pictures, mpeg2_size

SIGNATURES: Final = b"GG"
"""The first bytes of two packets."""
PACKET: Final = 188
"""The bytes of a packet."""
AAC_RATES: Final = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025,
                    8000, 7350)  # fmt: skip
"""Samples a second, by the number that stands for them in the headers of AAC."""

_CLOCK: Final = 90_000  # time units per second
_SECOND: Final = 1_000_000  # microseconds
_HEAD: Final = 4
_FIRST_OWN: Final = 0x20  # packets of smaller numbers are tables
_NULL: Final = 0x1FFF
_ANALYZED: Final = 21  # frames in whose times FFmpeg looks for the rate
_FEWEST: Final = 5  # frames; of fewer FFmpeg takes the rate from elsewhere
_MAX_PACKETS: Final = 1 << 20
_AAC: Final = 0x0F
_MPEG_1: Final = 0xF8
_MPEG_RATES: Final = 44100, 48000, 32000
_SOUNDS: Final = {_AAC: (1024, AAC_RATES), 0x03: (1152, _MPEG_RATES), 0x04: (1152, _MPEG_RATES)}
"""The samples of a frame, and the rates by their number in its header."""
_MAX_HEADER: Final = 1024  # bytes
_MAX_HEADERS: Final = 16
_SMALL: Final = 2  # a part of a frame takes so much less time than one of another file
_PES_HEAD: Final = 19  # bytes of a packet's head with both times
_SOUND_SYNC: Final = 0xFF
_START_CODE: Final = re.compile(rb"\x00\x00\x01")


@dataclass(frozen=True, slots=True)
class _Codec:
    """A video codec, by the kinds of parts that its packets have."""

    kind: Callable[[int], int]  # the kind of a part, by its first byte
    frame: int  # the mark that begins a frame
    header: int  # the part with the size of the frames
    keys: frozenset[int]  # the parts that only key frames have
    # The parts of a frame that is cut of which the decoder makes a picture.
    pictures: frozenset[int]
    # Width and height, by a header, and what else it tells.
    size: Callable[[bytes], tuple[int, int] | Pictures]


_H264: Final = 0x1B
_MAY_RECOVER: Final = frozenset({5, 6})  # key frames, and messages that may mark others
_CODECS: Final[Mapping[int, _Codec]] = {
    0x02: _Codec(
        lambda byte: byte,
        0x00,
        0xB3,
        frozenset({0xB3}),
        frozenset(range(1, 0xB0)),
        lambda d: mpeg2_size(d[1:]),
    ),
    _H264: _Codec(lambda byte: byte & 31, 9, 7, frozenset({5}), frozenset({1, 5}), h264_pictures),
    0x24: _Codec(
        lambda byte: byte >> 1 & 63, 35, 33, frozenset({19, 20}), frozenset(), hevc_pictures
    ),
}


@dataclass(slots=True)
class _Stream:
    """The packets of one stream: their content, and when each is shown and decoded.

    `may_be_cut` says whether the last packet fills its last piece, as one that goes on does.
    """

    kind: int
    may_be_cut: bool = False
    packets: list[bytearray] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    decoded: list[int] = field(default_factory=list)

    def add(self, payload: memoryview, *, begins: bool) -> None:
        self.may_be_cut = len(payload) == PACKET - _HEAD
        if begins:
            self._begin(payload)
        elif self.packets:
            self.packets[-1] += payload

    def _begin(self, payload: memoryview) -> None:
        if bytes(payload[:3]) != b"\0\0\1" or len(payload) < _PES_HEAD or not payload[7] & 0x80:
            raise not_predictable("a packet without a time")
        self.shown.append(_time(payload[9:14]))
        self.decoded.append(_time(payload[14:19]) if payload[7] & 0x40 else self.shown[-1])
        self.packets.append(bytearray(payload[9 + payload[8] :]))


def read_mpegts(data: bytes) -> VideoSize:
    """The header of the one video stream."""
    try:
        streams = _streams(memoryview(data))
    except (IndexError, ValueError) as error:
        raise not_predictable("a broken transport stream") from error
    videos = [stream for stream in streams if stream.kind in _CODECS and stream.packets]
    sounds = [stream for stream in streams if stream.kind in _SOUNDS and stream.packets]
    if len(videos) != 1 or len(streams) != len(videos) + len(sounds):
        kinds = ", ".join(f"{stream.kind:#x}" for stream in streams)
        raise not_predictable(
            f"a transport stream of the kinds {kinds}, not one video and AAC or MPEG sound: "
            "choose them with ffmpeg -i FILE -map 0:v:0 -c copy"
        )
    (video,) = videos
    (width, height), parts = _check_frames(video, len(data))
    rates = {
        estimated_rate(video.decoded[:n], Fraction(1, _CLOCK))
        for n in {min(_ANALYZED, len(video.decoded)), len(video.decoded)}
    }
    if len(rates) != 1 or len(video.decoded) < _FEWEST:
        raise not_predictable("a transport stream whose frames do not tell its rate")
    fps = rates.pop()
    frame = int(_CLOCK / fps)
    spans = [(video.shown[0], max(video.shown) + frame)]
    spans += [(sound.shown[0], max(sound.shown) + _sound_frame(sound)) for sound in sounds]
    starts, ends = ([at * _SECOND // _CLOCK for at in side] for side in zip(*spans, strict=True))
    duration = max(ends) - min(starts)
    claimed = int(duration / _SECOND * fps + 0.5)
    seconds = (np.sort(video.shown) - min(video.shown)) / _CLOCK
    if video.kind == _H264 and _is_lost_when_sought(video, parts):
        num_frames = claimed
    else:
        num_frames = frames_wherever_sought(seconds, fps, {claimed})
    return VideoSize(width, height, num_frames, fps, unreadable=max(num_frames - len(seconds), 0))


def _streams(data: memoryview) -> list[_Stream]:
    """The streams of the one program, with their packets."""
    if len(data) > _MAX_PACKETS * PACKET:
        raise not_predictable("a transport stream that is too long: cut it with ffmpeg")
    tables: dict[int, bool] = {0: False}  # those of programs are true
    streams: dict[int, _Stream] = {}
    for at in range(0, len(data) - PACKET + 1, PACKET):  # a packet that is cut is not read
        packet = data[at : at + PACKET]
        if packet[0] != SIGNATURES[0] or packet[1] & 0x80 or packet[3] & 0xC0:
            raise not_predictable("a transport stream with errors, or scrambled")
        number, begins = (packet[1] & 31) << 8 | packet[2], bool(packet[1] & 0x40)
        payload = _payload(packet)
        if number in tables and begins:
            section = payload[1 + payload[0] :]
            if tables[number]:
                streams = streams or _listed(section)
            else:
                programs = _programs(section)
                if len(programs) != 1:
                    raise not_predictable(f"a transport stream of {len(programs)} programs")
                tables |= dict.fromkeys(programs, True)
        elif number in streams:
            streams[number].add(payload, begins=begins)
        elif not streams and _FIRST_OWN <= number < _NULL and number not in tables:
            raise not_predictable("a transport stream whose tables come behind its first packets")
    return list(streams.values())


def _payload(packet: memoryview) -> memoryview:
    control = packet[3] >> 4 & 3
    start = _HEAD + (1 + packet[4] if control & 2 else 0)
    return packet[start:] if control & 1 else packet[:0]


def _programs(section: memoryview) -> list[int]:
    """The numbers of the packets that list a program's streams."""
    end = 3 + ((section[1] & 15) << 8 | section[2]) - 4
    rows = (section[at : at + 4] for at in range(8, end, 4))
    return [(row[2] & 31) << 8 | row[3] for row in rows if row[0] or row[1]]


def _listed(section: memoryview) -> dict[int, _Stream]:
    """The streams of a program, by the number of their packets."""
    end = 3 + ((section[1] & 15) << 8 | section[2]) - 4
    at = 12 + ((section[10] & 15) << 8 | section[11])
    streams = {}
    while at + 5 <= end:
        streams[(section[at + 1] & 31) << 8 | section[at + 2]] = _Stream(section[at])
        at += 5 + ((section[at + 3] & 15) << 8 | section[at + 4])
    return streams


def _time(field: memoryview) -> int:
    """A time of 33 bits, in units of 1/90000 s."""
    a, b, c, d, e = field
    return (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1


def _check_frames(video: _Stream, size_of_file: int) -> tuple[tuple[int, int], list[set[int]]]:
    """The size, and the kinds of parts of each packet."""
    codec = _CODECS[video.kind]
    left = most_parts(size_of_file) * _SMALL
    sizes: dict[bytes, tuple[int, int]] = {}  # by header
    found: list[set[int]] = []
    for packet in video.packets:
        codes = _START_CODE.finditer(packet, 0, len(packet) - 1)
        starts = [code.end() for code in islice(codes, left + 1)]
        left -= len(starts)
        if left < 0:
            raise not_predictable("a transport stream of more parts than an encoder writes")
        kinds = [codec.kind(packet[at]) for at in starts]
        if kinds.count(codec.frame) != 1:
            raise not_predictable("a transport stream whose packets are not one frame each")
        for at, kind in zip(starts, kinds, strict=True):
            if kind == codec.header:
                header, *_ = _START_CODE.split(bytes(packet[at : at + _MAX_HEADER]), 1)
                _add_size(sizes, header, codec)
        if not found and (not sizes or codec.keys.isdisjoint(kinds)):
            raise not_predictable("a transport stream that does not begin with a key frame")
        found.append(set(kinds))
    size = next(iter(sizes.values()), None)
    steps = np.diff(video.decoded)
    if size is None or (steps <= 0).any() or min(video.shown) != video.shown[0]:
        raise not_predictable("a transport stream whose times are out of order")
    if video.may_be_cut and codec.pictures.isdisjoint(found[-1]):
        raise not_predictable("a transport stream that may be cut within a frame")
    return size, found


def _add_size(sizes: dict[bytes, tuple[int, int]], header: bytes, codec: _Codec) -> None:
    if header not in sizes:
        if len(sizes) == _MAX_HEADERS:
            raise not_predictable("a transport stream that tells its size in many ways")
        sizes[header] = codec.size(header)[:2]
        if len({*sizes.values()}) > 1:
            raise not_predictable("a transport stream whose size changes")


def _is_lost_when_sought(video: _Stream, parts: list[set[int]]) -> bool:
    """Whether the decoder finds no key frame wherever OpenCV seeks, so that it learns no position.

    FFmpeg seeks to the last frame decoded before a time, key frame or not. The earliest time is
    when the first frame is shown.
    """
    earliest = int(np.searchsorted(video.decoded, video.shown[0], "right")) - 1
    found = set[int]().union(*parts[earliest:])
    if not found & _MAY_RECOVER:
        return True
    if not found & _CODECS[_H264].keys:
        raise not_predictable("a transport stream with one key frame, and frames like it")
    return False


def _sound_frame(sound: _Stream) -> int:
    """Time units of one frame of sound, by the header of the first."""
    sync, kind, third, *_ = *bytes(sound.packets[0][:3]), 0, 0, 0
    samples, rates = _SOUNDS[sound.kind]
    rate = third >> 2 & (15 if sound.kind == _AAC else 3)
    of_mpeg_1 = kind & _MPEG_1 == _MPEG_1 or sound.kind == _AAC
    if sync != _SOUND_SYNC or rate >= len(rates) or not of_mpeg_1:
        raise not_predictable("sound whose frames have no header that tells their length")
    return samples * _CLOCK // rates[rate]
