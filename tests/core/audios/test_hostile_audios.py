"""Audio of strangers: none raises, or takes long or much memory for its size."""

from __future__ import annotations

import re
import struct

import pytest
from hostile_files import BOXES, CHUNKS, PAGES, Form, check_cost, hostile, pieces, signed
from hypothesis import given
from hypothesis import strategies as st
from media_files import media_files

from mmroute import InexactError, read_audio
from mmroute.audios.flac import _checksums

FILES = media_files("audios")


def of_kind(*beginnings: str) -> list[bytes]:
    return [file.data for name, file in FILES.items() if name.startswith(beginnings)]


def box(name: bytes, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return struct.pack(">I", len(content) + 8) + name + content


def flac_of_many_ends() -> bytes:
    """Heads of its last frame, each of which may begin a frame of 200 kB."""
    data = FILES["flac"].data
    last = data.rindex(b"\xff\xf8")
    any_size = data[:15] + bytes(3) + data[18:42]  # of its largest frame
    return any_size + data[last : last + 12] * 99 + bytes(200_000)


PAGE = PAGES.parts(FILES["vorbis"].data)[0][1]
EMPTY_PAGE = signed(PAGE[:5] + b"\0" + bytes(8) + PAGE[14:26] + b"\0")
RUN = box(b"trun", struct.pack(">IIi", 1, 40_000_000, 0))
COSTLY = {
    "ends of FLAC": flac_of_many_ends(),
    "runs without columns": FILES["m4a-fragmented"].data
    + box(b"moof", box(b"traf", box(b"tfhd", struct.pack(">II", 0, 1)), RUN)),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_file_costs_little_for_its_size(name: str) -> None:
    check_cost(read_audio, COSTLY[name])


def test_more_pages_than_any_encoder_writes_are_refused() -> None:
    with pytest.raises(InexactError, match="more pages"):
        read_audio(PAGE + EMPTY_PAGE * 25_000)


@pytest.mark.parametrize("length", [0, 1])
def test_a_configuration_of_aac_that_is_too_short_is_refused(length: int) -> None:
    whole = FILES["m4a"].data
    at = re.search(rb"\x05(\x80\x80\x80)?[\x02-\x07]", whole[whole.index(b"esds") :])
    assert at
    end = whole.index(b"esds") + at.end()
    with pytest.raises(InexactError, match=r"one track of sound|too short"):
        read_audio(whole[: end - 1] + bytes([length]) + whole[end:])


def test_a_page_that_is_damaged_is_refused() -> None:
    whole = FILES["vorbis"].data
    assert read_audio(PAGES.written(PAGES.parts(whole))) == read_audio(whole)
    damaged = whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:]
    with pytest.raises(InexactError, match="checksum"):
        read_audio(damaged)


def test_the_checksums_of_all_ends_are_those_of_each() -> None:
    def checksum(data: bytes) -> int:
        crc = 0
        for byte in data:
            crc ^= byte << 8
            for _ in range(8):
                crc = crc << 1 ^ (0x18005 if crc & 0x8000 else 0)
        return crc

    data = FILES["flac"].data * 9  # longer than the powers take to repeat
    found = _checksums(data)
    assert len(found) == len(data) > 1 << 15
    for at in (0, 1, 100, len(data) - 300, len(data) - 1):
        assert found[at] == checksum(data[at:])


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (BOXES, of_kind("m4a")),
        (CHUNKS, of_kind("wav")),
        (PAGES, of_kind("vorbis", "opus")),
        (pieces(42), of_kind("flac")),
        (pieces(36), of_kind("mp3")),
    ],
    ids=["mp4", "wav", "ogg", "flac", "mp3"],
)
@given(draw=st.data())
def test_no_structure_raises_or_costs_much(
    form: Form, files: list[bytes], draw: st.DataObject
) -> None:
    check_cost(read_audio, draw.draw(hostile(form, files)))
