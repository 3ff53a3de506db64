"""Samples and rate of recordings, from their headers, as the engine decodes them."""

from __future__ import annotations

import io

import pytest
from media_files import media_files

from mmroute import InexactError, Reason
from mmroute.audios.reading import audio_in
from mmroute.geometry.resampling import resampled_length
from mmroute.requests.items import AudioLength

FILES = media_files("audios")
REFUSED = {
    "aiff": "none of WAV",
    "alac": "codec b'alac'",
    "empty": "none of WAV",
    "flac-cut": "does not end with the last of 9001 samples",
    "m4a-cut": "do not describe one track",
    "m4a-edited-twice": "several edits",
    "m4a-rate-may-double": "may double its rate",
    "mp4-without-sound": "0 tracks of sound",
    "mp3-cut": "its sound ends -50 bytes before the file does",
    "mp3-untagged": "no Xing or Info tag",
    "opus-cut": "ends within a page",
    "opus-twice": "more than one stream",
    "text": "none of WAV",
    "wav-adpcm": "format 17",
    "wav-empty": "0 bytes of data",
    "wav-no-length": "0 bytes of data in frames of 2, where 666 are left",
    "wav-rf64": "none of WAV",
    "wav-twice": "more than one data chunk",
    "wav-twice-cut": "more than one data chunk",
    "wav-streamed-nothing": "4294967295 bytes of data in frames of 2, where 1 are left",
}


def header(data: bytes) -> AudioLength:
    return audio_in(io.BytesIO(data), None)


@pytest.mark.parametrize("name", sorted(FILES.keys() - REFUSED - {"opus-16k"}))
def test_a_header_says_what_the_engine_decodes(name: str) -> None:
    assert header(FILES[name].data) == AudioLength(**(FILES[name].engine or {}))


def test_opus_has_one_length_after_resampling_whatever_rate_its_decoder_gives_out() -> None:
    file = FILES["opus-16k"]
    assert file.engine is not None
    read = header(file.data)
    assert read.sampling_rate == 48_000
    assert resampled_length(read.num_samples, 48_000, 16_000) == file.engine["num_samples"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_header_that_does_not_tell_is_refused(name: str) -> None:
    with pytest.raises(InexactError, match=REFUSED[name]) as caught:
        header(FILES[name].data)
    assert caught.value.reason is Reason.AUDIO_NOT_PREDICTABLE


def test_flac_blocks_of_no_sample_are_refused() -> None:
    data = bytearray(FILES["flac"].data)
    data[8:12] = bytes(4)  # the sizes of the smallest and the largest block
    with pytest.raises(InexactError, match="in blocks of 0"):
        header(bytes(data))


@pytest.mark.parametrize("name", ["wav-note", "flac", "mp3-notes", "vorbis", "opus", "m4a"])
def test_a_damaged_header_is_read_or_refused(name: str) -> None:
    refused = []
    for file in FILES[name].damaged(1_000, within=400):
        try:
            read = header(file)
        except InexactError as error:
            refused.append(error.reason)
        else:
            assert read.num_samples > 0
            assert read.sampling_rate > 0
    assert set(refused) == {Reason.AUDIO_NOT_PREDICTABLE}
