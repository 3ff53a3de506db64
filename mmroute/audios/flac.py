"""FLAC: the number of samples in the header, and a check that the last frame is in the file.

Source: RFC 9639.
"""

from __future__ import annotations

from typing import BinaryIO, Final

from mmroute.audios.header import not_predictable
from mmroute.requests.items import AudioLength

SIGNATURE: Final = b"fLaC"
"""The first bytes of a file."""

_STREAM_INFO: Final = 34  # bytes
_MIN_FRAME: Final = 6
_MAX_TAIL: Final = 1 << 18  # the largest last frame that is searched for
_MAX_CANDIDATES: Final = 100
_FIXED: Final = b"\xff\xf8"  # the first bytes of a frame in a stream with one block size
_CODED_SIZES: Final = {
    1: 192,
    **{n: 144 << n for n in range(2, 6)},
    **{n: 1 << n for n in range(8, 16)},
}


def read_flac(file: BinaryIO, size: int) -> AudioLength:
    """The header of a FLAC file."""
    file.seek(len(SIGNATURE))
    head = file.read(4 + _STREAM_INFO)
    if len(head) < 4 + _STREAM_INFO or head[0] & 0x7F or head[3] != _STREAM_INFO:
        raise not_predictable("it does not begin with a STREAMINFO block")
    largest_frame = int.from_bytes(head[11:14])
    packed = int.from_bytes(head[14:22])
    rate, channels, total = packed >> 44, (packed >> 41 & 7) + 1, packed & ((1 << 36) - 1)
    block = int.from_bytes(head[4:6])
    if not rate or not total or not block or block != int.from_bytes(head[6:8]):
        raise not_predictable(f"{total} samples at a rate of {rate}, in blocks of {block} or more")
    tail = min(largest_frame or _MAX_TAIL, _MAX_TAIL, size)
    file.seek(size - tail)
    last = (total - 1) // block
    if not _ends_with_frame(file.read(tail), last, total - last * block):
        raise not_predictable(f"it does not end with the last of {total} samples")
    return AudioLength(total, rate, channels=channels)


def _ends_with_frame(tail: bytes, number: int, samples: int) -> bool:
    """Whether a file's last bytes are a complete frame with this number and so many samples."""
    at = len(tail)
    for _ in range(_MAX_CANDIDATES):
        at = tail.rfind(_FIXED, 0, at)
        if at < 0:
            return False
        frame = tail[at:]
        if len(frame) > _MIN_FRAME and _frame(frame) == (number, samples) and not _crc16(frame):
            return True
    return False


def _frame(frame: bytes) -> tuple[int, int] | None:
    """A frame's number and its count of samples; None if the bytes do not begin with a frame."""
    coded, first = frame[2] >> 4, frame[4]
    width = max(1, 8 - (first ^ 0xFF).bit_length())  # coded as UTF-8 codes characters
    number = first & (0x7F if width == 1 else 0x7F >> width)
    for byte in frame[5 : 4 + width]:
        number = number << 6 | byte & 0x3F
    at = 4 + width
    if coded in (6, 7):
        return number, int.from_bytes(frame[at : at + coded - 5]) + 1
    if coded in _CODED_SIZES:
        return number, _CODED_SIZES[coded]
    return None


def _crc16(data: bytes) -> int:
    """The checksum of a frame; 0 over a complete frame with its own checksum at the end."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFFFF) ^ _TABLE[crc >> 8 ^ byte]
    return crc


def _table() -> list[int]:
    table = []
    for byte in range(1 << 8):
        crc = byte << 8
        for _ in range(8):
            crc = crc << 1 ^ (0x18005 if crc & 0x8000 else 0)
        table.append(crc & 0xFFFF)
    return table


_TABLE: Final = _table()
