"""Frames, rate and size of videos, from their headers, as OpenCV's reader reports them."""

from __future__ import annotations

import io
import sys
import tracemalloc
from dataclasses import replace

import pytest
from media_files import media_files

from mmroute import InexactError, Reason
from mmroute.requests.items import VideoSize
from mmroute.videos.reading import read_video_header

FILES = media_files("videos")
REFUSED = {
    "av1": "codec b'av01'",
    "avi-cut": "cut within its header or its index",
    "avi-cut-empty-frames-slow": "cut, and has empty frames",
    "avi-cut-first-frame": "before the end of its first frame",
    "bytes-behind": "ends within the header of a box",
    "cut": "ends before its box b'moov'",
    "apng": "animated",
    "cut-b-frames-all-held-back": "cut within a frame",
    "cut-first-mpeg4": "1 frames in",
    "cut-fragment": "cut within a fragment",
    "cut-vp9": "cut within a frame",
    "edit-hides-all": "hides 6 of 6 frames",
    "edit-pause-behind": "with one behind a part",
    "edit-pauses-alone": "pauses alone",
    "empty": "none of MP4",
    "fragmented-index-of-several-late": "may count from",
    "gif-bytes-behind": "3 bytes behind its end",
    "gif-cut": "ends within a block",
    "mkv-part": "shown before its first key frame",
    "mkv-two-videos": "2 video tracks",
    "mp4-part": "shown before its first key frame",
    "mpegts-cut-hevc": "may be cut within a frame",
    "mpegts-two-frames": "do not tell its rate",
    "mpegts-two-videos": "not one video and AAC",
    "mpegts-variable": "may count from",
    "no-moov": "0 boxes 'moov'",
    "slower-mpeg4": "may lose frames",
    "sound-much-longer": "too many packets",
    "still-JPEG-bytes-behind": "ends at byte",
    "still-JPEG-cmyk": "of mode CMYK",
    "still-PNG-bytes-behind": "ends at byte",
    "text": "none of MP4",
    "turned-45": "turned by less than a right angle",
    "turned-mirrored": "mirrored",
    "turned-transposed": "mirrored",
    "two-videos": "2 video tracks",
    "webm-cut-before-its-frames": "0 frames",
    "webm-variable": "may count from",
}


def header(data: bytes) -> VideoSize:
    return read_video_header(io.BytesIO(data))


@pytest.mark.parametrize("name", sorted(FILES.keys() - REFUSED))
def test_a_header_says_what_the_engine_reads(name: str) -> None:
    engine = dict(FILES[name].engine or {})
    lost = engine.pop("lost", [])
    unreadable = engine["num_frames"] - engine.pop("readable") - len(lost)
    found = header(FILES[name].data)
    assert lost == ([] if found.lost is None else [found.lost])
    assert replace(found, lost=None) == VideoSize(**engine, unreadable=unreadable)


@pytest.mark.parametrize("name", REFUSED)
def test_a_header_that_does_not_tell_is_refused(name: str) -> None:
    with pytest.raises(InexactError, match=REFUSED[name]) as caught:
        header(FILES[name].data)
    assert caught.value.reason is Reason.VIDEO_NOT_PREDICTABLE


def test_a_transport_stream_that_begins_between_its_tables_is_refused() -> None:
    """FFmpeg goes back to the packets before them."""
    with pytest.raises(InexactError, match="tables come behind"):
        header(FILES["mpegts-b-frames"].data[3 * 188 :])


class CountedFile(io.BytesIO):
    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize("name", ["plain", "moov-first"])
def test_of_a_large_mp4_little_more_than_its_moov_is_read(name: str) -> None:
    data = FILES[name].data
    free = (5_000_000).to_bytes(4) + b"free" + bytes(4_999_992)
    file = CountedFile(data + free)  # what is skipped as the media are
    assert read_video_header(file) == header(data)
    assert file.bytes_read < len(data) + 100


@pytest.mark.parametrize(
    "name",
    [
        "b-frames",
        "sound-longer",
        "edit-delay",
        "fragmented-index",
        "webm-vp8",
        "mkv-h264",
        "mkv-live",
        "mpegts-b-frames",
        "gif-25",
        "avi",
        "avi-cut-jpeg",
    ],
)
def test_a_damaged_header_is_read_or_refused(name: str) -> None:
    refused = []
    for file in FILES[name].damaged(300, within=sys.maxsize):
        try:
            read = header(file)
        except InexactError as error:
            refused.append(error.reason)
        else:
            assert read.num_frames > 0
            assert read.fps > 0
    assert set(refused) == {Reason.VIDEO_NOT_PREDICTABLE}


def test_a_fragment_at_the_end_of_time_is_refused() -> None:
    data = bytearray(FILES["fragmented-index"].data)
    at = data.index(b"tfdt") + 8
    data[at : at + 8] = b"\xff" * 8
    with pytest.raises(InexactError, match="at a time or place that no file has"):
        header(bytes(data))


def test_a_header_that_claims_millions_of_frames_takes_no_memory() -> None:
    data = bytearray(FILES["plain"].data)
    table = data.index(b"stsz") + 8
    data[table : table + 8] = b"\0\0\0\1" + (2**31).to_bytes(4)  # frames of a byte each
    times = data.index(b"stts") + 12
    data[times : times + 4] = (2**31).to_bytes(4)
    tracemalloc.start()
    with pytest.raises(InexactError, match="2147483648 frames"):
        header(bytes(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
