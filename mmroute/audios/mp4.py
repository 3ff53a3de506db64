"""M4A, and the sound of MP4 and MOV: frames of AAC, less what the edit list leaves out.

A decoder makes 1,024 samples of each frame. It leaves out what comes before the start of the edit,
and frames that begin behind its end; the last frame is not cut.

Source: ISO/IEC 14496-1 (descriptors), 14496-3, 1.6 (the configuration of AAC) and 14496-12 (boxes);
FFmpeg 8 ``libavformat/mov.c`` (`mov_fix_index`), which torchcodec and PyAV use.
"""

from __future__ import annotations

from typing import BinaryIO, Final, NamedTuple

from mmroute.audios.header import not_predictable
from mmroute.errors import InexactError, Reason
from mmroute.requests.items import AudioLength
from mmroute.videos.boxes import Box
from mmroute.videos.layout import Layout, read_layout
from mmroute.videos.mp4 import with_fragments
from mmroute.videos.mpegts import AAC_RATES
from mmroute.videos.rationals import rescaled
from mmroute.videos.samples import most_frames, read_edits, read_samples
from mmroute.videos.tracks import handler, time_scale

_SAMPLES: Final = 1024  # of a frame
_FEWEST: Final = 2
_ENTRY: Final = 28  # bytes of the description of sound, before its boxes
_LONGER_ENTRY: Final = {0: 0, 1: 16}  # bytes that come to it, by the version of QuickTime
_STREAM, _DECODER, _CONFIGURATION = 3, 4, 5  # tags of descriptors
_CONFIGURATION_BYTES: Final = 2  # at the least
_AAC: Final = 0x40
_LOW_COMPLEXITY: Final = 2
_CHANNELS: Final = range(1, 7)
_REPLICATION: Final = 5  # the band replication that doubles the rate
_EXTENSION: Final = 0x2B7
_LOWEST_CERTAIN_RATE: Final = 24_001  # below, a stream may double its rate without telling so


class _Aac(NamedTuple):
    rate: int
    channels: int


def read_mp4(file: BinaryIO, size: int) -> AudioLength:
    """The header of the one track of sound."""
    try:
        layout = read_layout(file, size)
        if layout.cut_at is not None:
            raise not_predictable("it is cut")
        tracks = [track for track in layout.movie.all(b"trak") if handler(track) == b"soun"]
        if len(tracks) != 1:
            raise not_predictable(f"{len(tracks)} tracks of sound")
        return _read_track(tracks[0], layout)
    except InexactError as error:
        if error.reason is Reason.VIDEO_NOT_PREDICTABLE:  # the boxes are those of videos
            raise not_predictable(
                "its boxes do not describe one track of sound that is whole"
            ) from error
        raise


def _read_track(track: Box, layout: Layout) -> AudioLength:
    tables = track.only(b"mdia", b"minf", b"stbl")
    codec = _codec(tables.only(b"stsd"))
    samples = read_samples(tables, layout.media_size, most_frames(layout.media_size))
    edits = [edit for edit in read_edits(track) if edit.start >= 0]
    if layout.fragments:
        if len(samples.durations):
            raise not_predictable("samples both in its header and in fragments")
        samples = with_fragments(samples, track, layout)
    total = len(samples.durations)
    if total < _FEWEST:
        raise not_predictable(f"{total} frames, of which a decoder may return none")
    if (
        (samples.durations[:-1] != _SAMPLES).any()
        or samples.durations[-1] > _SAMPLES
        or time_scale(track) != codec.rate
        or len(edits) > 1
    ):
        raise not_predictable(f"frames of other lengths than {_SAMPLES} samples, or several edits")
    samples.check(layout.media)
    skipped = 0
    if edits:
        skipped = edits[0].start
        if not layout.fragments:  # of those FFmpeg takes the start alone
            end = skipped + rescaled(edits[0].duration, codec.rate, _movie_scale(layout.movie))
            total = int((samples.shown < end).sum())
    length = total * _SAMPLES - skipped
    if length <= 0:
        raise not_predictable(f"{length} samples")
    return AudioLength(length, codec.rate, channels=codec.channels, needs_ffmpeg=True)


def _movie_scale(movie: Box) -> int:
    header = movie.only(b"mvhd")
    return max(header.unpack("I", 20 if header.is_wide else 12)[0], 1)


def _codec(descriptions: Box) -> _Aac:
    entries = descriptions.within(skip=8)
    if set(entries) != {b"mp4a"} or len(entries[b"mp4a"]) != 1:
        raise not_predictable(f"codec {', '.join(map(repr, entries))}")
    (entry,) = entries[b"mp4a"]
    (version,) = entry.unpack("H", 8)
    if version not in _LONGER_ENTRY:
        raise not_predictable(f"a description of version {version}")
    inner = entry.within(skip=_ENTRY + _LONGER_ENTRY[version])
    for box in inner.get(b"wave", ()):
        inner = box.within()
    if len(inner.get(b"esds", ())) != 1:
        raise not_predictable("it does not tell how its sound is coded")
    (box,) = inner[b"esds"]
    return _configuration(box.data[box.start + 4 : box.end])


def _configuration(descriptors: bytes) -> _Aac:
    try:
        stream = _descriptor(descriptors, _STREAM)
        if stream[2] & 0xE0:
            raise not_predictable("its stream depends on another one")
        decoder = _descriptor(stream[3:], _DECODER)
        if decoder[0] != _AAC:
            raise not_predictable(f"a coding of kind {decoder[0]:#x}, which is not AAC")
        return _aac(_descriptor(decoder[13:], _CONFIGURATION))
    except IndexError as error:
        raise not_predictable("its descriptors are too short") from error


def _descriptor(data: bytes, tag: int) -> bytes:
    """The content of the descriptor that the data begin with."""
    if data[0] != tag:
        raise not_predictable(f"a descriptor {data[0]} in place of {tag}")
    at, length = 1, 0
    while True:
        length = length << 7 | data[at] & 0x7F
        at += 1
        if not data[at - 1] & 0x80:
            return data[at : at + length]


def _aac(configuration: bytes) -> _Aac:
    """Rate and channels of AAC that is certain to keep its rate."""
    if len(configuration) < _CONFIGURATION_BYTES:
        raise not_predictable("a configuration of AAC that is too short")
    bits = "".join(f"{byte:08b}" for byte in configuration)
    kind, rate_index, channels = int(bits[:5], 2), int(bits[5:9], 2), int(bits[9:13], 2)
    if kind != _LOW_COMPLEXITY or rate_index >= len(AAC_RATES) or channels not in _CHANNELS:
        raise not_predictable(f"AAC of kind {kind}, with {channels} channels")
    if bits[13:16] != "000":  # frames of 960 samples, a core, an extension
        raise not_predictable("AAC with frames of another length")
    rate, rest = AAC_RATES[rate_index], bits[16:]
    is_extended = rest[:16] == f"{_EXTENSION:011b}{_REPLICATION:05b}"
    if (is_extended and rest[16:17] != "0") or (not is_extended and rate < _LOWEST_CERTAIN_RATE):
        raise not_predictable(f"AAC at {rate} samples a second, which may double its rate")
    return _Aac(rate, channels)
