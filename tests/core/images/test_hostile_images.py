"""Images of strangers: none raises, or takes long or much memory for its size."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import pytest
from hostile_files import BOXES, CHUNKS, PNG, SEGMENTS, Form, check_cost, hostile, pieces
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmroute import InexactError, read_image


def picture(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (40, 30), 1).save(file, kind, **options)
    return file.getvalue()


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x112] = 6
    return exif


def tiff(*tags: tuple[int, int, int, int], behind: bytes = b"") -> bytes:
    rows = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + rows + bytes(4) + behind


def strips(count: int, *, big: bool = False) -> bytes:
    """A picture of one pixel in a row, each of which is a strip."""
    if big:
        first = struct.pack("<HHQQ", 273, 4, count, 0)
        return b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 1) + first + bytes(4 * count)
    numbers = {256: 1, 257: count, 258: 8, 259: 1, 262: 1, 277: 1, 278: 1}
    tags = [(tag, 4, 1, number) for tag, number in numbers.items()]
    lists = [(tag, 4, count, 14 + 9 * 12) for tag in (273, 279)]
    return tiff(*sorted(tags + lists), behind=struct.pack("<I", 1) * count)


def png(*chunks: tuple[bytes, bytes], behind: bool = False) -> bytes:
    """A picture with further chunks before or behind it."""
    parts: list[Any] = PNG.parts(picture("PNG", "RGBA"))
    at = len(parts) - 1 if behind else 2
    return PNG.written([*parts[:at], *map(list, chunks), *parts[at:]])


def notes(kind: bytes, head: bytes, *, count: int) -> list[tuple[bytes, bytes]]:
    text = zlib.compress(bytes(1_000_000), 9)
    return [(kind, b"k%d" % number + head + text) for number in range(count)]


def tiff_of(tag: int, kind: int, count: int) -> bytes:
    """A grey picture of 40x30 with so many numbers of four or eight bytes in one of its tags."""
    numbers = {256: 40, 257: 30, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 30, 279: 1200}
    tags = {name: (name, 4, 1, number) for name, number in numbers.items()}
    tags[tag] = (tag, kind, count, 14 + 12 * len({*tags, tag}))
    return tiff(*sorted(tags.values()), behind=b"\1\2\3\4" * 2 * count)


def jpeg_turned(exif: bytes) -> bytes:
    parts = SEGMENTS.parts(picture("JPEG"))
    parts.insert(1, [b"\xff\xe1", b"Exif\0\0" + exif])
    return SEGMENTS.written(parts)


RATIONALS = tiff((0x112, 3, 1, 6), (1000, 5, 25_000, 38), behind=b"\1" * 200_000)
WITHOUT_END = PNG.written([
    *PNG.parts(b"\x89PNG\r\n\x1a\n"),
    [b"IHDR", struct.pack(">IIBBBBB", 9400, 9000, 8, 0, 0, 0, 1)],
    [b"IDAT", zlib.compress(bytes(10**8), 9)],
])  # fmt: skip
COSTLY = {
    "strips": strips(50_000),
    "strips in 64 bits": strips(50_000, big=True),
    "notes": png(*notes(b"zTXt", b"\0\0", count=30)),
    "notes behind": png(*notes(b"zTXt", b"\0\0", count=30), behind=True),
    "international notes": png(*notes(b"iTXt", b"\0\1\0\0\0", count=30)),
    "profiles": png(*[(b"iCCP", b"p\0\0" + zlib.compress(bytes(1_000_000), 9))] * 30),
    "fractions that are summed": tiff_of(258, 5, 4000),
    "fractions of each sample": tiff_of(339, 10, 50_000),
    "resolutions": tiff_of(282, 5, 50_000),
    "numbers of each sample": tiff_of(339, 4, 100_000),
    "turned, with fractions": jpeg_turned(
        tiff((0x112, 3, 1, 6), (1000, 5, 7000, 38), behind=b"\1" * 56_000)
    ),
    "turned, with fractions elsewhere": jpeg_turned(
        tiff(
            (0x112, 3, 1, 6),
            (0x8769, 4, 1, 38),
            behind=b"\1\0" + struct.pack("<HHII", 1000, 5, 7000, 56) + b"\1" * 56_004,
        )
    ),
    "rationals": png((b"eXIf", RATIONALS)),
    "markers": picture("JPEG", progressive=True)[:-2] + b"\xff\1" * 90_000 + b"\xff\xd9",
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_file_costs_little_for_its_size(name: str) -> None:
    check_cost(read_image, COSTLY[name])
    with pytest.raises(InexactError):
        read_image(COSTLY[name])


def test_a_picture_that_inflates_to_a_thousand_times_its_file_is_not_inflated() -> None:
    with pytest.raises(InexactError, match="ends before its picture does"):
        read_image(WITHOUT_END)


@pytest.mark.parametrize("behind", [False, True])
def test_some_compressed_notes_are_read(behind: bool) -> None:
    assert read_image(png(*notes(b"zTXt", b"\0\0", count=3), behind=behind)).size.width == 40


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (PNG, [picture("PNG"), picture("PNG", "P"), picture("PNG", "RGBA", exif=turned())]),
        (SEGMENTS, [picture("JPEG", exif=turned()), picture("JPEG", "L", progressive=True)]),
        (CHUNKS, [picture("WEBP"), picture("WEBP", "RGBA", exif=turned())]),
        (BOXES, [picture("AVIF")]),
        (pieces(12), [picture("TIFF"), picture("TIFF", compression="tiff_lzw")]),
        (pieces(13), [picture("GIF", "P"), picture("BMP")]),
    ],
    ids=["png", "jpeg", "webp", "avif", "tiff", "gif"],
)
@given(draw=st.data())
def test_no_structure_raises_or_costs_much(
    form: Form, files: list[bytes], draw: st.DataObject
) -> None:
    check_cost(read_image, draw.draw(hostile(form, files)))
