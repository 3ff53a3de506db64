"""Videos of strangers: none raises, or takes long or much memory for its size."""

from __future__ import annotations

import base64
import re
import struct
import tracemalloc
from typing import Any

import pytest
from hostile_files import BOXES, CHUNKS, ELEMENTS, Form, check_cost, hostile, pieces
from hypothesis import given
from hypothesis import strategies as st
from media_files import media_files

from mmroute import InexactError, Reason, read_video
from mmroute.videos.boxes import Box, Budget
from mmroute.videos.samples import first_lost, read_samples

FILES = media_files("videos")
PACKET = 188
INFO, TRACKS, CLUSTER = 0x1549A966, 0x1654AE6B, 0x1F43B675


def of_kind(*beginnings: str) -> list[bytes]:
    return [file.data for name, file in FILES.items() if name.startswith(beginnings)]


def box(name: bytes, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return struct.pack(">I", len(content) + 8) + name + content


def fragment(*boxes: bytes, flags: int = 0, defaults: bytes = b"") -> bytes:
    header = box(b"tfhd", struct.pack(">II", flags, 1), defaults)
    return box(b"moof", box(b"traf", header, *boxes))


def run(count: int) -> bytes:
    """Frames that have the defaults for all of their numbers."""
    return box(b"trun", struct.pack(">IIi", 1, count, 0))


def webm(within: int, *parts: Any) -> bytes:
    """A WebM file with further parts within one of its elements."""
    tree = ELEMENTS.parts(FILES["webm-vp8"].data)
    segment = next(content for name, content in tree if name == 0x18538067)
    next(content for name, content in segment if name == within)[:0] = parts
    return ELEMENTS.written(tree)


def riff(within: bytes, part: Any, *, count: int, behind: int = 0) -> bytes:
    """An AVI file with a part so many times within one of its lists, and a long last part."""
    tree = CHUNKS.parts(FILES["avi"].data)
    places = [content for content in lists_of(tree) if content[0] == [None, within]]
    places[0][-1:-1] = [part] * count
    tree[0][1].append([b"JUNK", bytes(behind)])
    return CHUNKS.written(tree)


def lists_of(tree: Any) -> list[Any]:
    inner = [content for _, content in tree if isinstance(content, list)]
    return inner + [found for content in inner for found in lists_of(content)]


def transport_stream(payload: bytes) -> bytes:
    """The tables and the first frame of a stream, which the payload makes longer."""
    data = FILES["mpegts"].data
    at = next(at for at in range(0, len(data), PACKET) if data[at + 1] & 0x41 == 0x41)
    pieces_of_payload = [payload[n : n + 184] for n in range(0, len(payload) // 184 * 184, 184)]
    number = data[at + 1 : at + 3]
    head = bytes([0x47, number[0] & 31, number[1], 0x10])
    return data[: at + PACKET] + b"".join(head + piece for piece in pieces_of_payload)


def movie(*parts: Any) -> bytes:
    """An MP4 file with further boxes at the end of its header."""
    tree = BOXES.parts(FILES["plain"].data)
    parts_of(tree, b"moov").extend(parts)
    return BOXES.written(tree)


def parts_of(parts: Any, *path: bytes) -> Any:
    """The content of the last part of each name, from a tree on down."""
    for name in path:
        parts = next(content for found, content in reversed(parts) if found == name)
    return parts


def cut_sound(samples: int) -> bytes:
    """A file that is cut, whose sound has a byte for each of its samples."""
    tree = BOXES.parts(FILES["mov-pcm-cut"].data)
    tables = parts_of(tree, b"moov", b"trak", b"mdia", b"minf", b"stbl")
    others = [part for part in tables if part[0] not in (b"stts", b"stsc", b"stsz")]
    tables[:] = [
        *others,
        [b"stts", struct.pack(">IIII", 0, 1, samples, 1)],
        [b"stsc", struct.pack(">IIIII", 0, 1, 1, samples, 1)],
        [b"stsz", struct.pack(">III", 0, 1, samples)],
    ]
    next(part for part in tables if part[0] == b"stco")[1] = struct.pack(">III", 0, 1, 0)
    beginning, media, behind = BOXES.written(tree).partition(b"mdat")
    longer = (int.from_bytes(beginning[-4:]) + 2 * samples).to_bytes(4)
    return beginning[:-4] + longer + media + behind + bytes(samples)


FREE: Any = [b"free", b""]
SOUND: Any = [b"mdia", [[b"hdlr", bytes(8) + b"soun"]]]
COVER = box(b"hdlr", bytes(12)) + box(b"ilst") * 900
FRAGMENTED = FILES["fragmented"].data
SIZED: dict[str, Any] = {"flags": 0x18, "defaults": struct.pack(">II", 512, 100)}
SPS = re.findall(rb"\x00\x00\x01\x67.*?(?=\x00\x00\x01)", FILES["mpegts"].data, re.DOTALL)[0]
COSTLY = {
    "runs without columns": FRAGMENTED + fragment(run(40_000_000), **SIZED),
    "a run of all numbers": FRAGMENTED + fragment(run(2**32 - 1), **SIZED),
    "runs of one": FRAGMENTED + fragment(*[run(1)] * 900) * 10,
    "empty fragments": FRAGMENTED + box(b"moof") * 25_000,
    "indexes": FRAGMENTED + box(b"sidx", bytes(24)) * 6000,
    "media of no byte": FILES["plain"].data + box(b"mdat") * 90_000,
    "voids": webm(INFO, *[[0xEC, b""]] * 60_000),
    "voids in a group": webm(CLUSTER, *[[0xA0, [[0xEC, b""]] * 20 + [[0xA1, bytes(5)]]]] * 4000),
    "blocks": webm(CLUSTER, *[[0xA3, b"\x81\0\0\x80\x10"]] * 30_000),
    "tracks of voids": webm(TRACKS, *[[0xAE, [[0x83, b"\2"], *[[0xEC, b""]] * 950]]] * 200),
    "streams": riff(b"hdrl", [b"LIST", [[None, b"strl"], *[[b"JUNK", b""]] * 1250]], count=20),
    "chunks at the top level": riff(b"AVI ", [b"JUNK", b""], count=49_000, behind=1_700_000),
    "chunks": FILES["avi"].data[:4]
    + struct.pack("<I", len(FILES["avi"].data) - 8 + 8 * 120_000)
    + FILES["avi"].data[8:]
    + b"JUNK\0\0\0\0" * 120_000,
    "parameter sets": transport_stream(SPS * 25_000),
    "start codes": transport_stream(b"\0\0\1\6" * 300_000),
    "boxes in fragments": FRAGMENTED + fragment(*[box(b"free")] * 950) * 200,
    "boxes in tracks": movie(*[[b"trak", [SOUND, *[FREE] * 950]]] * 200),
    "covers": movie(*[[b"udta", [[b"meta", bytes(4) + COVER]]]] * 200),
    "metadata": movie(*[[b"udta", [[b"meta", bytes(4)]] * 950]] * 200),
    "fragments and media": FRAGMENTED + box(b"moof") * 45_000 + box(b"mdat", bytes(2_000_000)),
    "sound that is cut": cut_sound(2_000_000),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_file_costs_little_for_its_size(name: str) -> None:
    check_cost(read_video, COSTLY[name])


def test_more_frames_of_a_list_than_are_read_fast_are_refused() -> None:
    frame = base64.b64encode(FILES["gif-still"].data).decode()
    frames = "data:video/jpeg;base64," + ",".join([frame] * 300)
    assert read_video(frames, max_frames=-1).size.num_frames == 300
    assert read_video(frames + "," * 100_000, max_frames=300).size.num_frames == 300
    with pytest.raises(InexactError, match=r"more than 3\d\d frames"):
        read_video(frames + "," * 100_000, max_frames=-1)


@pytest.mark.parametrize("count", [0, 40_001, 40_000_000, 2**32 - 1])
def test_a_run_of_more_frames_than_its_file_holds_is_refused(count: int) -> None:
    tracemalloc.start()
    with pytest.raises(InexactError, match=f"a fragment of {count} frames") as caught:
        read_video(FRAGMENTED + fragment(run(count), **SIZED))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.reason is Reason.VIDEO_NOT_PREDICTABLE
    assert peak < 1_000_000


def test_sound_is_lost_where_the_file_is_cut() -> None:
    tree = BOXES.parts(FILES["mov-pcm-cut"].data)
    tables = BOXES.written(parts_of(tree, b"moov", b"trak", b"mdia", b"minf", b"stbl"))
    box_of_tables = Box(tables, 0, len(tables), Budget(1000))
    samples = read_samples(box_of_tables, 1 << 20)
    begins, ends = int(samples.starts[0]), int(samples.ends[-1])
    for end in (0, begins, begins + 1, (begins + ends) // 2, ends - 1, ends, ends + 1):
        lost = samples.decoded[samples.ends > end]
        assert first_lost(box_of_tables, end) == (lost[0] if len(lost) else None)


@pytest.mark.parametrize("content", [b"\x7f" * 9, b"\x7f" * 20, b"\x7f" * 8])
def test_a_timestamp_that_no_file_has_is_refused(content: bytes) -> None:
    with pytest.raises(InexactError, match=r"an integer of|a time of") as caught:
        read_video(webm(CLUSTER, [0xE7, content]))
    assert caught.value.reason is Reason.VIDEO_NOT_PREDICTABLE


def changed_parts(name: str, change: Any) -> bytes:
    form = ELEMENTS if name.startswith("webm") else BOXES
    tree = form.parts(FILES[name].data)
    change(tree)
    return form.written(tree)


def _in_movie(number: int) -> Any:
    """Moves the first box of a movie behind others."""

    def move(tree: Any) -> None:
        movie = parts_of(tree, b"moov")
        movie.insert(number, movie.pop(0))

    return move


def _data(*path: Any, content: bytes) -> Any:
    """Puts other bytes into the last of the parts at a path."""

    def put(tree: Any) -> None:
        among = parts_of(tree, *path[:-1])
        next(part for part in reversed(among) if part[0] == path[-1])[1] = content

    return put


_TABLES = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
SEGMENT = 0x18538067
BROKEN = {
    "a movie's header behind": ("hevc", _in_movie(2)),
    "frames of a byte": ("plain", _data(*_TABLES, b"stsz", content=struct.pack(">III", 0, 1, 6))),
    "no edits and a row": ("plain", _data(
        b"moov", b"trak", b"edts", b"elst", content=struct.pack(">IIIII", 0, 0, 200, 0, 1 << 16))),
    "references": (
        "plain", _data(b"moov", b"trak", b"mdia", b"minf", b"dinf", content=box(
            b"dref", struct.pack(">II", 0, 65537), box(b"url ", b"\0\0\0\1")))),
    "a track of sound": (
        "sound-longer", lambda tree: parts_of(tree, *_TABLES).append([b"stsd", bytes(8)])),
    "a version": ("webm-vp9", _data(0x1A45DFA3, content=b"\x42\x85\x81\x04")),
    "a frame of no track": (
        "webm-vp9", _data(SEGMENT, CLUSTER, 0xA3, content=b"\x02\0\x86\0\x86")),
    "tags": ("webm-vp9", _data(SEGMENT, 0x1254C367, content=b"\x73\x73\x41\x00")),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_the_engine_may_read_otherwise_is_refused(name: str) -> None:
    file, change = BROKEN[name]
    assert read_video(changed_parts(file, lambda _: None)).size.num_frames >= 6
    with pytest.raises(InexactError) as caught:
        read_video(changed_parts(file, change))
    assert caught.value.reason is Reason.VIDEO_NOT_PREDICTABLE


def test_sound_of_many_packets_beside_fragments_is_read_or_refused() -> None:
    content = struct.pack(">III", 0, 0, 5000)
    data = changed_parts("fragmented-sound", _data(*_TABLES, b"stsz", content=content))
    with pytest.raises(InexactError):
        read_video(data)


def test_edits_that_show_the_frames_again_and_again_are_refused() -> None:
    tree = BOXES.parts(FILES["plain"].data)
    track = parts_of(tree, b"moov", b"trak")
    track[:] = [part for part in track if part[0] != b"edts"]
    edits = struct.pack(">IiI", 2**30, 0, 1 << 16) * 100
    before = len(BOXES.written(tree))
    track.append([b"edts", [[b"elst", struct.pack(">II", 0, 100) + edits]]])
    assert len(BOXES.written(tree)) > before
    with pytest.raises(InexactError, match="many times"):
        read_video(BOXES.written(tree))


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (BOXES, of_kind("plain", "b-frames", "sound", "edit", "moov-first")),
        (BOXES, of_kind("fragmented")),
        (ELEMENTS, of_kind("webm-vp8", "mkv-h264")),
        (CHUNKS, of_kind("avi")),
        (pieces(PACKET), of_kind("mpegts")),
        (pieces(13), of_kind("gif")),
    ],
    ids=["mp4", "fragments", "matroska", "avi", "mpegts", "gif"],
)
@given(draw=st.data())
def test_no_structure_raises_or_costs_much(
    form: Form, files: list[bytes], draw: st.DataObject
) -> None:
    check_cost(read_video, draw.draw(hostile(form, files)))
