"""Ogg Vorbis and Opus: the position at which the last page ends.

Source: RFC 3533 (Ogg), RFC 7845 (Opus in Ogg), the Vorbis I specification.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO, Final

from mmroute.audios.header import AudioHeader, not_predictable

__all__ = ["SIGNATURE", "read_ogg"]

SIGNATURE: Final = b"OggS"
"""The first bytes of a file."""

_PAGE: Final = struct.Struct("<4sBBqIIIB")
_CONTINUES: Final = 255  # a segment of that length is not the last one of its packet
_MAX_PAGE: Final = 65_307
_MAX_HEADERS: Final = 200  # pages of notes and codebooks
_CONTINUED, _FIRST, _LAST = 1, 2, 4
_OPUS_RATE: Final = 48_000
_SOUNDFILE_RATES: Final = frozenset({8_000, 12_000, 16_000, 24_000})
_MAX_OPUS_PACKET: Final = 5_760  # samples
_VORBIS: Final = struct.Struct("<7xIBI12xB")
_OPUS: Final = struct.Struct("<8xBBHI")


@dataclass(frozen=True, slots=True)
class _Page:
    """One page.

    Attributes:
        flags: continued, first of the stream, last.
        position: samples up to its end; -1 where no packet ends.
        serial: of the stream.
        packets: how many end on the page.
        start: where its content begins in the file.
        end: where the page ends.
    """

    flags: int
    position: int
    serial: int
    packets: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Codec:
    """What the first packet says.

    Attributes:
        rate: samples per second.
        channels: how many there are.
        skipped: samples at the beginning that are not given out.
        largest: samples that one packet holds at most.
        step: samples for one that libsndfile gives out, which goes back to the original rate.
    """

    rate: int
    channels: int
    skipped: int
    largest: int
    step: int


def read_ogg(file: BinaryIO, size: int) -> AudioHeader:
    """The header of an Ogg file with one Vorbis or Opus stream.

    Args:
        file: seekable, at any position.
        size: of the file, in bytes.

    Raises:
        InexactError: `audio_not_predictable`.
    """
    first = _page(file, 0, size)
    file.seek(first.start)
    codec = _codec(file.read(first.end - first.start))
    last = _last_page(file, size)
    if last.serial != first.serial or not first.flags & _FIRST or not last.flags & _LAST:
        raise not_predictable("its first and last page are not those of one stream")
    _check_start(file, first, last, codec)
    samples = last.position - codec.skipped
    if samples % codec.step:
        raise not_predictable(f"{samples} samples, of which decoders make different numbers")
    if samples <= 0 or not codec.rate or not codec.channels:
        raise not_predictable(f"{samples} samples at a rate of {codec.rate}")
    return AudioHeader(samples, codec.rate, codec.channels)


def _codec(packet: bytes) -> _Codec:
    if packet[:7] == b"\x01vorbis" and len(packet) >= _VORBIS.size:
        _, channels, rate, blocks = _VORBIS.unpack_from(packet)
        return _Codec(rate, channels, 0, 1 << (blocks >> 4), 1)
    if packet[:8] == b"OpusHead" and len(packet) >= _OPUS.size:
        _, channels, skipped, original = _OPUS.unpack_from(packet)
        step = _OPUS_RATE // original if original in _SOUNDFILE_RATES else 1
        return _Codec(_OPUS_RATE, channels, skipped, _MAX_OPUS_PACKET, step)
    raise not_predictable("its first stream is neither Vorbis nor Opus")


def _check_start(file: BinaryIO, first: _Page, last: _Page, codec: _Codec) -> None:
    """Check that there is one stream, whose positions begin at 0."""
    page = first
    for _ in range(_MAX_HEADERS):
        if page.end >= last.end:
            raise not_predictable("it has no sound")
        page = _page(file, page.end, last.end)
        if page.flags & _FIRST or page.serial != first.serial:
            raise not_predictable("it has more than one stream")
        if page.position > 0:
            if page.position > page.packets * codec.largest:
                raise not_predictable("its positions do not begin at 0")
            return
    raise not_predictable("its sound does not begin where it is looked for")


def _last_page(file: BinaryIO, size: int) -> _Page:
    """The page that ends with the file."""
    start = max(0, size - _MAX_PAGE)
    file.seek(start)
    tail = file.read(size - start)
    at = len(tail)
    while (at := tail.rfind(SIGNATURE, 0, at)) >= 0:
        head = tail[at : at + _PAGE.size]
        if len(head) == _PAGE.size and (page := _page(file, start + at, size)).end == size:
            return page
    raise not_predictable("it does not end with a page, cut short or broken")


def _page(file: BinaryIO, at: int, size: int) -> _Page:
    file.seek(at)
    head = file.read(_PAGE.size)
    if len(head) < _PAGE.size or head[:4] != SIGNATURE:
        raise not_predictable("it has bytes between its pages")
    _, _, flags, position, serial, _, _, count = _PAGE.unpack(head)
    segments = file.read(count)
    start = at + _PAGE.size + count
    packets = sum(length < _CONTINUES for length in segments)
    page = _Page(flags, position, serial, packets, start, start + sum(segments))
    if page.end > size:
        raise not_predictable("it ends within a page")
    return page
