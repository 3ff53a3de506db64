"""MP3: the frames that a Xing or Info tag counts, less the samples that a LAME tag says were added.

Source: the LAME project's "Mp3 Info Tag rev 1"; ISO/IEC 11172-3 and 13818-3 for frame headers.
"""

from __future__ import annotations

from typing import BinaryIO, Final

from mmroute.audios.header import not_predictable
from mmroute.requests.items import AudioLength

ID3: Final = b"ID3"
"""The first bytes of a file with an ID3 tag before its sound."""
SYNC: Final = frozenset(
    b"\xff" + bytes([second]) for second in (0xFA, 0xFB, 0xF2, 0xF3, 0xE2, 0xE3)
)
"""The first bytes of a frame of layer III: MPEG-1, 2 and 2.5."""

_ID3_HEADER: Final = 10
_ID3_FOOTER: Final = 0x10
_ID3V1: Final = 128
_MPEG_1: Final = 3
_RATES: Final = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
_MONO: Final = 3
_SIDE: Final = {(True, True): 17, (True, False): 32, (False, True): 9, (False, False): 17}
_HAS_FRAMES, _HAS_BYTES, _HAS_TABLE, _HAS_QUALITY = 1, 2, 4, 8
_TABLE: Final = 100
_HEAD: Final = 256
_ENCODERS: Final = (b"LAME", b"Lavf", b"Lavc")
_DECODER_DELAY: Final = 529
_DELAYS: Final = 21  # the offset of the delays in the LAME tag


def read_mp3(file: BinaryIO, size: int) -> AudioLength:
    """The header of an MP3 file."""
    at = _first_frame(file)
    file.seek(at)
    frame = file.read(_HEAD)
    if frame[:2] not in SYNC or len(frame) < _HEAD:
        raise not_predictable("its sound does not begin with a frame of layer III")
    version, rate_index, mono = frame[1] >> 3 & 3, frame[2] >> 2 & 3, frame[3] >> 6 == _MONO
    if rate_index >= len(_RATES[version]):
        raise not_predictable("a frame of no sampling rate")
    tag = frame[4 + _SIDE[version == _MPEG_1, mono] :]
    if tag[:4] not in (b"Xing", b"Info"):
        raise not_predictable("it has no Xing or Info tag, so its frames must be counted")
    flags = int.from_bytes(tag[4:8])
    if flags & (_HAS_FRAMES | _HAS_BYTES) != _HAS_FRAMES | _HAS_BYTES:
        raise not_predictable("its Xing or Info tag does not tell frames and bytes")
    frames, length = int.from_bytes(tag[8:12]), int.from_bytes(tag[12:16])
    _check_end(file, size - at - length)
    behind = tag[16 + _TABLE * bool(flags & _HAS_TABLE) + 4 * bool(flags & _HAS_QUALITY) :]
    if behind[:4] not in _ENCODERS:
        raise not_predictable("it has no LAME tag, so the samples added to its sound are not known")
    delays = int.from_bytes(behind[_DELAYS : _DELAYS + 3])
    delay, padding = delays >> 12, delays & 0xFFF
    per_frame = 1152 if version == _MPEG_1 else 576
    samples = frames * per_frame - delay - padding
    if samples <= 0 or padding > per_frame + _DECODER_DELAY:  # decoders differ in shorter ones
        raise not_predictable(f"{samples} samples in {frames} frames")
    return AudioLength(samples, _RATES[version][rate_index], channels=1 if mono else 2)


def _first_frame(file: BinaryIO) -> int:
    """The offset at which the sound begins, after an ID3 tag if there is one."""
    file.seek(0)
    head = file.read(_ID3_HEADER)
    if head[:3] != ID3 or len(head) < _ID3_HEADER:
        return 0
    length = 0
    for byte in head[6:10]:
        length = length << 7 | byte & 0x7F
    return _ID3_HEADER * (2 if head[5] & _ID3_FOOTER else 1) + length


def _check_end(file: BinaryIO, behind: int) -> None:
    """Check that the sound reaches to the end of the file, or to an ID3v1 tag there."""
    if behind == _ID3V1:
        file.seek(-_ID3V1, 2)
        if file.read(3) == b"TAG":
            return
    if behind:
        raise not_predictable(f"its sound ends {behind} bytes before the file does")
