"""From an audio file to its header, whatever the container."""

from __future__ import annotations

import io
from typing import BinaryIO

from mmroute.audios import flac, mp3, ogg, wav
from mmroute.audios.header import AudioHeader, not_predictable

__all__ = ["read_audio_header"]


def read_audio_header(file: BinaryIO) -> AudioHeader:
    """What an audio file's header says, without decoding anything.

    Args:
        file: seekable, at any position. Its beginning and its end are read, of Ogg the head of
            every page.

    Raises:
        InexactError: `audio_not_predictable`.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(4)
    if head == wav.SIGNATURE:
        return wav.read_wav(file, size)
    if head == flac.SIGNATURE:
        return flac.read_flac(file, size)
    if head == ogg.SIGNATURE:
        return ogg.read_ogg(file, size)
    if head[:3] == mp3.ID3 or head[:2] in mp3.SYNC:
        return mp3.read_mp3(file, size)
    raise not_predictable(f"it is none of WAV, FLAC, MP3 and Ogg, but begins with {head!r}")
