"""Ogg Vorbis and Opus: the position at the end of the last page. All pages are read.

Source: RFC 3533 (Ogg), RFC 7845 (Opus in Ogg), the Vorbis I specification.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from mmroute.audios.header import not_predictable
from mmroute.images.parts import most_parts
from mmroute.requests.items import AudioLength

SIGNATURE: Final = b"OggS"
"""The first bytes of a file."""

_PAGE: Final = struct.Struct("<4sBBqIIIB")
_CHECKSUM: Final = 22  # the offset of the checksum in a page
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_ONES: Final = (1 << 32) - 1
_CONTINUES: Final = 255  # a segment of this length is not the last one of its packet
_FIRST, _LAST = 2, 4
_OPUS_RATE: Final = 48_000
_SOUNDFILE_RATES: Final = frozenset({8_000, 12_000, 16_000, 24_000})
_MAX_OPUS_PACKET: Final = 5_760  # samples
_VORBIS: Final = struct.Struct("<7xIBI12xB")
_OPUS: Final = struct.Struct("<8xBBHI")


@dataclass(frozen=True, slots=True)
class _Page:
    """One page."""

    flags: int  # bits that mark the first and the last page of a stream
    position: int  # the number of samples up to the page's end; -1 if no packet ends on it
    serial: int  # the serial number of the stream
    packets: int  # the number of packets that end on the page
    start: int  # the offset in the file at which the page's content begins
    end: int  # the offset in the file at which the page ends


@dataclass(frozen=True, slots=True)
class _Codec:
    """The facts in the first packet."""

    rate: int  # the number of samples per second
    channels: int  # the number of channels
    skipped: int  # the number of samples at the beginning that decoders leave out
    largest: int  # the most samples that one packet holds
    # The number of samples of the stream for each sample that libsndfile returns, which restores
    # the original rate.
    step: int


def read_ogg(file: BinaryIO, size: int) -> AudioLength:
    """The header of an Ogg file with one Vorbis or Opus stream."""
    pages = _pages(file, size)
    first = next(pages)
    file.seek(first.start)
    codec = _codec(file.read(first.end - first.start))
    if first.position:
        raise not_predictable("its positions do not begin at 0")
    last, has_sound = first, False
    for page in pages:
        if page.flags & _FIRST or page.serial != first.serial:
            raise not_predictable("it has more than one stream")
        if page.position > 0 and not has_sound:
            has_sound = True
            if page.position > page.packets * codec.largest:
                raise not_predictable("its positions do not begin at 0")
        last = page
    samples = last.position - codec.skipped
    if not last.flags & _LAST or samples <= 0 or not codec.rate or not codec.channels:
        raise not_predictable(f"{samples} samples at a rate of {codec.rate}, or no last page")
    if samples % codec.step:
        raise not_predictable(f"{samples} samples, of which decoders make different numbers")
    return AudioLength(samples, codec.rate, channels=codec.channels)


def _codec(packet: bytes) -> _Codec:
    if packet[:7] == b"\x01vorbis" and len(packet) >= _VORBIS.size:
        _, channels, rate, blocks = _VORBIS.unpack_from(packet)
        return _Codec(rate, channels, 0, 1 << (blocks >> 4), 1)
    if packet[:8] == b"OpusHead" and len(packet) >= _OPUS.size:
        _, channels, skipped, original = _OPUS.unpack_from(packet)
        step = _OPUS_RATE // original if original in _SOUNDFILE_RATES else 1
        return _Codec(_OPUS_RATE, channels, skipped, _MAX_OPUS_PACKET, step)
    raise not_predictable("its first stream is neither Vorbis nor Opus")


def _checksum(page: bytes) -> int:
    """The checksum of a page, by that of zlib, which takes the bits of each byte in reverse."""
    reverse = zlib.crc32(page.translate(_REVERSED), _ONES) ^ _ONES
    return int(f"{reverse:032b}"[::-1], 2)


def _pages(file: BinaryIO, size: int) -> Iterator[_Page]:
    end, left = 0, most_parts(size)
    while not end or end < size:
        left -= 1
        if left < 0:
            raise not_predictable(f"more pages than are read of {size} bytes")
        file.seek(end)
        head = file.read(_PAGE.size)
        if len(head) < _PAGE.size or head[:4] != SIGNATURE:
            raise not_predictable("it has bytes between its pages")
        _, _, flags, position, serial, _, checksum, count = _PAGE.unpack(head)
        segments = file.read(count)
        start = end + _PAGE.size + count
        end = start + sum(segments)
        if end > size:
            raise not_predictable("it ends within a page")
        unsigned = head[:_CHECKSUM] + bytes(4) + head[_CHECKSUM + 4 :]
        if _checksum(unsigned + segments + file.read(end - start)) != checksum:
            raise not_predictable("a page whose checksum is wrong, which decoders leave out")
        packets = sum(length < _CONTINUES for length in segments)
        yield _Page(flags, position, serial, packets, start, end)
