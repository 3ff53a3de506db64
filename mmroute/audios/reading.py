"""From bytes, a file or a data URL to an audio item, whatever the container."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import BinaryIO, Final

from mmroute.audios import flac, mp3, ogg, wav
from mmroute.audios.header import not_predictable
from mmroute.errors import InexactError, Reason
from mmroute.images.data_url import MediaSource, read_source
from mmroute.requests.items import AudioLength, checked_uuid

_MAX_BYTES: Final = 25 << 20  # of a file, by the engine's default


def read_audio(source: MediaSource, *, uuid: str | None = None) -> AudioLength:
    """Audio whose token count is known, from its file's header; nothing is decoded.

    The engine's identity covers the decoded samples, so only a uuid makes it known.

    Args:
        source: bytes, data URL, or path of a WAV, FLAC, MP3, Ogg Vorbis or Opus file.
        uuid: the client's own name for the audio.

    Raises:
        InexactError: `audio_not_predictable` if the header does not tell what the engine decodes;
            `item_refused` if the file is larger than it takes; `item_unreadable` for a malformed
            data URL; `invalid_request` if `source` is not one of these, or `uuid` is not a string.
        OSError: the path cannot be opened.
    """
    return audio_in(io.BytesIO(read_source(source, Reason.ITEM_UNREADABLE)), checked_uuid(uuid))


def audio_in(file: BinaryIO, uuid: str | None) -> AudioLength:
    """The audio in an open file, by its header; nothing is decoded.

    Args:
        file: seekable, at any position. Its beginning and its end are read, of Ogg the head of
            every page. Each format's reader gets its size in bytes, too.
        uuid: the client's own name for the audio.

    Raises:
        InexactError: `audio_not_predictable`, `item_refused`; what reading the file raises.
    """
    size = file.seek(0, io.SEEK_END)
    if size > _MAX_BYTES:
        raise InexactError(
            Reason.ITEM_REFUSED,
            f"the engine takes audio files of at most {_MAX_BYTES} bytes, found {size}",
        )
    file.seek(0)
    head = file.read(4)
    if head == wav.SIGNATURE:
        audio = wav.read_wav(file, size)
    elif head == flac.SIGNATURE:
        audio = flac.read_flac(file, size)
    elif head == ogg.SIGNATURE:
        audio = ogg.read_ogg(file, size)
    elif head[:3] == mp3.ID3 or head[:2] in mp3.SYNC:
        audio = mp3.read_mp3(file, size)
    else:
        raise not_predictable(f"it is none of WAV, FLAC, MP3 and Ogg, but begins with {head!r}")
    return replace(audio, uuid=uuid)
