"""WAV: the length of the data chunk, and the size of a frame.

Source: Microsoft's multimedia registration kit (``RIFF``, ``WAVEFORMATEX``); libsndfile 1.2 and
FFmpeg 7 for the formats that both read alike.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

from mmroute.audios.header import not_predictable
from mmroute.requests.items import AudioLength

SIGNATURE: Final = b"RIFF"
"""The first bytes of a file."""

_CHUNK: Final = struct.Struct("<4sI")
_FORMAT: Final = struct.Struct("<HHIIHH")
_RIFF_HEADER: Final = 12
_MAX_CHUNKS: Final = 100
_MAX_FORMAT: Final = 64
_EXTENSIBLE: Final = 0xFFFE
_SUBFORMAT: Final = 24  # the offset of the subformat in the format chunk
_GUID_END: Final = bytes.fromhex("000000001000800000aa00389b71")
# The bits of a sample for which decoders agree, by format: PCM, float, A-law, mu-law.
_BITS: Final = {1: {8, 16, 24, 32}, 3: {32, 64}, 6: {8}, 7: {8}}


def read_wav(file: BinaryIO, size: int) -> AudioLength:
    """The header of a WAV file."""
    file.seek(0)
    if file.read(_RIFF_HEADER)[8:] != b"WAVE":
        raise not_predictable("a RIFF file that is no WAVE")
    at, described, found = _RIFF_HEADER, b"", None
    for _ in range(_MAX_CHUNKS):
        if at >= size:
            break
        file.seek(at)
        head = file.read(_CHUNK.size)
        if found is not None and head.startswith(b"data"):
            raise not_predictable("it has more than one data chunk")
        if len(head) < _CHUNK.size:
            break
        name, length = _CHUNK.unpack(head)
        at += _CHUNK.size
        if name == b"data":
            found = _header(described, length, size - at)
        elif name == b"fmt ":
            described = file.read(min(length, _MAX_FORMAT))
        at += length + length % 2
    if found is None:
        raise not_predictable("it has no data chunk")
    return found


def _header(described: bytes, length: int, room: int) -> AudioLength:
    if len(described) < _FORMAT.size:
        raise not_predictable("it has no format before its data")
    kind, channels, rate, _, align, bits = _FORMAT.unpack_from(described)
    if kind == _EXTENSIBLE and described[_SUBFORMAT + 2 : _SUBFORMAT + 16] == _GUID_END:
        kind = int.from_bytes(described[_SUBFORMAT : _SUBFORMAT + 2], "little")
    if bits not in _BITS.get(kind, ()) or not channels or align != channels * bits // 8:
        raise not_predictable(
            f"format {kind} with {bits} bits, {channels} channels and {align} bytes a frame"
        )
    # A writer that cannot seek leaves a placeholder: a length beyond the end.
    num_samples = min(length, room) // align
    if not num_samples:
        raise not_predictable(f"{length} bytes of data in frames of {align}, where {room} are left")
    if not rate:
        raise not_predictable("a sampling rate of 0")
    return AudioLength(num_samples, rate, channels=channels)
