"""FLAC: the number of samples in the header, and a check that the last frame is in the file.

Source: RFC 9639.
"""

from __future__ import annotations

from functools import cache
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from mmroute.audios.header import not_predictable
from mmroute.requests.items import AudioLength

SIGNATURE: Final = b"fLaC"
"""The first bytes of a file."""

_STREAM_INFO: Final = 34  # bytes
_MIN_FRAME: Final = 6
_FRAME_HEAD: Final = 16  # the most bytes of a frame's head
_PERIOD: Final = (1 << 15) - 1  # of the powers of x
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
    at, checksums = len(tail), None
    for _ in range(_MAX_CANDIDATES):
        at = tail.rfind(_FIXED, 0, at)
        if at < 0:
            return False
        frame = tail[at : at + _FRAME_HEAD]
        if len(frame) > _MIN_FRAME and _frame(frame) == (number, samples):
            checksums = _checksums(tail) if checksums is None else checksums
            if not checksums[at]:
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


def _checksums(data: bytes) -> npt.NDArray[np.uint16]:
    """The checksum from each offset to the end; 0 over a complete frame with its own at its end.

    A checksum is the sum (exclusive or) of a power for each bit that is set. It depends on the
    distance of the bit to the end alone.
    """
    backwards = np.frombuffer(data, np.uint8)[::-1]
    sums = np.zeros(len(data), np.uint16)
    for bit in range(8):
        powers = _powers()[16 + bit :: 8][:_PERIOD]
        sums ^= np.resize(powers, len(data)) * (backwards >> bit & 1)
    return np.bitwise_xor.accumulate(sums)[::-1]


@cache
def _powers() -> npt.NDArray[np.uint16]:
    """The powers of x, modulo the polynomial; they repeat."""
    powers, power = [], 1
    for _ in range(_PERIOD):
        powers.append(power)
        power = power << 1 ^ (0x18005 if power & 0x8000 else 0)
    return np.resize(np.array(powers, np.uint16), 9 * _PERIOD)
