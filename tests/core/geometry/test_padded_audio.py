"""Audio that is filled up to whole chunks (Voxtral)."""

from __future__ import annotations

import pytest

from mmroute import AudioLength, InexactError, Reason
from mmroute.geometry.grids.padded_audio import PaddedAudio

VOXTRAL = PaddedAudio(16_000, 12.5, 30.0, 160)


def count(samples: int, rate: int, channels: int = 1) -> int:
    return VOXTRAL.count(AudioLength(samples, rate, channels=channels)).total


def test_every_started_chunk_counts_whole() -> None:
    assert count(1, 16_000) == count(480_000, 16_000) == count(1_000_000, 44_100) == 375
    assert count(480_001, 16_000) == count(1_330_000, 44_100) == 750


@pytest.mark.parametrize(("samples", "rate"), [(1_323_000, 44_100), (240_000, 8_000), (1, 48_000)])
def test_after_resampling_the_end_of_a_chunk_is_not_certain(samples: int, rate: int) -> None:
    with pytest.raises(InexactError, match="may count differently") as caught:
        count(samples, rate)
    assert caught.value.reason is Reason.AUDIO_NOT_PREDICTABLE


def test_a_file_that_libsndfile_does_not_read_is_refused() -> None:
    with pytest.raises(InexactError, match="libsndfile") as caught:
        VOXTRAL.count(AudioLength(16_000, 16_000, needs_ffmpeg=True))
    assert caught.value.reason is Reason.ITEM_REFUSED


def test_more_than_one_channel_is_refused_as_by_mistral_common() -> None:
    with pytest.raises(InexactError, match="takes one channel, not 2") as caught:
        count(16_000, 16_000, channels=2)
    assert caught.value.reason is Reason.ITEM_REFUSED
