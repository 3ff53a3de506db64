"""Reads an audio item from bytes, a file or a data URL, in any of the known containers."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import BinaryIO, Final

from mmroute.audios import flac, mp3, mp4, ogg, wav
from mmroute.audios.header import not_predictable
from mmroute.errors import InexactError, Reason
from mmroute.images.data_url import MediaSource, read_source
from mmroute.requests.checks import checked_uuid
from mmroute.requests.items import AudioLength
from mmroute.videos.mp4 import FIRST_BOXES

_MAX_BYTES: Final = 25 << 20  # the engine's default limit for a file


def read_audio(source: MediaSource, *, uuid: str | None = None) -> AudioLength:
    """Read the length of audio, so that its token count is known.

    The length comes from the file's header; nothing is decoded. The engine computes the identity
    from the decoded samples, so the identity is known only if there is a uuid.

    Args:
        source: the bytes, data URL or path of a WAV, FLAC, MP3, Ogg Vorbis, Opus, M4A or MP4 file.
        uuid: the client's own name for the audio.

    Raises:
        InexactError: `audio_not_predictable` if the header does not tell what the engine decodes;
            `item_refused` if the file is larger than the engine's limit; `item_unreadable` for a
            malformed data URL; `invalid_request` if `source` is none of these, or `uuid` is not a
            string.
        OSError: the path cannot be opened.
    """
    return audio_in(io.BytesIO(read_source(source, Reason.ITEM_UNREADABLE)), checked_uuid(uuid))


def audio_in(file: BinaryIO, uuid: str | None) -> AudioLength:
    """Read the length of the audio in an open file."""
    size = file.seek(0, io.SEEK_END)
    if size > _MAX_BYTES:
        raise InexactError(
            Reason.ITEM_REFUSED,
            f"the engine takes audio files of at most {_MAX_BYTES} bytes, found {size}",
        )
    file.seek(0)
    head = file.read(8)
    if head[:4] == wav.SIGNATURE:
        audio = wav.read_wav(file, size)
    elif head[:4] == flac.SIGNATURE:
        audio = flac.read_flac(file, size)
    elif head[:4] == ogg.SIGNATURE:
        audio = ogg.read_ogg(file, size)
    elif head[:3] == mp3.ID3 or head[:2] in mp3.SYNC:
        audio = mp3.read_mp3(file, size)
    elif head[4:] in FIRST_BOXES:
        audio = mp4.read_mp4(file, size)
    else:
        # Its first bytes are not told: a link may name a file that is not the client's.
        raise not_predictable("it is none of WAV, FLAC, MP3, Ogg and MP4")
    return replace(audio, uuid=uuid)
