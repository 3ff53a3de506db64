"""Sizes and identities of images, from their bytes."""

from __future__ import annotations

import contextlib
import cProfile
import io
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_vectors import data_url, image_files
from media_files import chunk
from PIL import Image, ImageOps

from mmroute import ImageSize, InexactError, Reason, read_image

FILES = image_files()
WHOLE = [
    name for name in FILES if not name.startswith("cut-") and name not in ("html", "empty", "bomb")
]
BROKEN = [name for name in FILES if name not in WHOLE]


def decoded(data: bytes) -> tuple[tuple[int, int], bool]:
    """Size and conversion as vLLM 0.33.0 finds them: it decodes the picture with Pillow."""
    image: Image.Image = Image.open(io.BytesIO(data))
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    image.load()
    return image.size, image.mode != "RGB" or "transparency" in image.info


@pytest.mark.parametrize("name", WHOLE)
def test_size_and_conversion_are_those_of_the_decoded_picture(name: str) -> None:
    data = FILES[name]
    image = read_image(data)
    assert ((image.size.width, image.size.height), image.converted) == decoded(data)
    assert read_image(data_url(data)) == read_image(bytearray(data)) == image


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_orientation_swaps_the_sides_where_the_engine_applies_it(orientation: int) -> None:
    data = FILES[f"jpeg-exif-{orientation}"]
    shown = (24, 86) if orientation >= 5 else (86, 24)
    image = read_image(data)
    assert (image.size, image.stored) == (ImageSize(*shown), ImageSize(86, 24))
    assert read_image(data, upright=False).size == ImageSize(86, 24)


@pytest.mark.parametrize("name", ["tiff", "tiff-exif-6", "tiff-xmp-6"])
def test_a_tiff_picture_is_upright_for_every_engine(name: str) -> None:
    picture = Image.open(io.BytesIO(FILES[name]))
    picture.load()  # turns it
    assert read_image(FILES[name], upright=False).size == ImageSize(*picture.size)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused(name: str) -> None:
    with pytest.raises(InexactError) as caught:
        read_image(FILES[name])
    assert caught.value.reason in (Reason.IMAGE_UNREADABLE, Reason.IMAGE_REFUSED)


def test_a_path_is_opened_and_a_text_never_is(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(FILES["png"])
    assert read_image(path) == read_image(FILES["png"])
    with pytest.raises(InexactError, match="or a pathlib"):
        read_image(str(path))


def noisy_jpeg() -> bytes:
    noise = Image.effect_noise((640, 480), 100)
    buffer = io.BytesIO()
    Image.merge("RGB", (noise, noise.rotate(90, expand=False), noise)).save(buffer, "JPEG")
    return buffer.getvalue()


def test_a_url_with_line_breaks_is_refused() -> None:
    url = data_url(noisy_jpeg())
    with pytest.raises(InexactError) as caught:
        read_image(url[:20_000] + "\n" * 4 + url[20_004:])
    assert caught.value.reason is Reason.IMAGE_UNREADABLE


def test_a_header_may_be_longer_than_the_beginning() -> None:
    for length in (10_000, 60_000):
        comment = b"\xff\xfe" + (length + 2).to_bytes(2, "big") + bytes(length)
        data = noisy_jpeg()
        assert read_image(data[:2] + comment + data[2:]).size == read_image(data).size


@given(st.data())
def test_no_mutation_raises_anything_else(draws: st.DataObject) -> None:
    name = draws.draw(st.sampled_from(sorted(FILES)))
    data = bytearray(FILES[name])
    places = st.integers(0, max(0, len(data) - 1))
    for at in draws.draw(st.lists(places, max_size=6)) if data else []:
        data[at] = draws.draw(st.integers(0, 255))
    cut = (
        bytes(data[: draws.draw(st.integers(0, len(data)))]) if draws.draw(st.booleans()) else data
    )
    with contextlib.suppress(InexactError):
        read_image(bytes(cut))


@given(st.text(max_size=40))
def test_no_url_raises_anything_else(text: str) -> None:
    for url in (text, f"data:{text}", f"data:image/png;base64,{text}"):
        with contextlib.suppress(InexactError):
            read_image(url)


@pytest.mark.parametrize("source", [None, 3, ["data:"], object()])
def test_other_sources_are_named(source: Any) -> None:
    with pytest.raises(InexactError, match="bytes, a data URL or a path"):
        read_image(source)


MEGABYTE = 1 << 20


def png(width: int, height: int, body: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_claim_of_many_pixels_costs_nothing() -> None:
    stream = bytes(13_000 * 13_000 * 3 // 1000)  # less could not hold so many pixels
    claims = png(13_000, 13_000, chunk(b"IDAT", stream) + chunk(b"IEND", b""))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_image(claims).size.width == 13_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def bomb(size: int) -> bytes:
    """So many zero bytes, compressed: one megabyte again and again."""
    packer = zlib.compressobj()
    first, other = (
        packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    end = zlib.compressobj(wbits=-zlib.MAX_WBITS).flush()
    checksum = (size % 65521 << 16) + 1
    return first + other * (size // MEGABYTE - 1) + end + checksum.to_bytes(4)


def test_a_stream_that_inflates_without_end_is_given_up() -> None:
    """Without IEND only the compressed stream tells whether the file is whole."""
    assert zlib.decompress(bomb(3 * MEGABYTE)) == bytes(3 * MEGABYTE)
    with pytest.raises(InexactError, match="ends before its picture does"):
        read_image(png(16_000, 5_000, chunk(b"IDAT", bomb(1 << 28))))


@pytest.mark.parametrize("end", [b"", b"\0\0IEND", b"\0\0\0\0IE"])
@pytest.mark.parametrize("missing", [0, 1, 31, 100])
def test_rows_count_where_neither_the_stream_nor_the_file_ends(missing: int, end: bytes) -> None:
    """The engine stops to read behind the last row, as llm-d's warm-up picture needs it."""
    rows = b"".join(b"\0" + bytes(range(30)) for _ in range(10))
    packer = zlib.compressobj()
    stream = packer.compress(rows[: len(rows) - missing]) + packer.flush(zlib.Z_SYNC_FLUSH)
    damaged = chunk(b"IDAT", stream)[:-4] + b"\1\2\3\4"
    data = png(10, 10, damaged + end)
    if missing:
        with pytest.raises((OSError, SyntaxError)):
            decoded(data)
        with pytest.raises(InexactError, match="ends before its picture does"):
            read_image(data)
    else:
        image = read_image(data)
        assert ((image.size.width, image.size.height), image.converted) == decoded(data)


def test_a_compressed_note_that_inflates_without_end_is_refused() -> None:
    note = b"note\0\0" + bomb(1 << 28)
    body = chunk(b"zTXt", note) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    with pytest.raises(InexactError) as caught:
        read_image(png(3, 3, body))
    assert caught.value.reason is Reason.IMAGE_UNREADABLE


def without_end(jpeg: bytes, behind: bytes) -> bytes:
    assert jpeg.endswith(b"\xff\xd9")
    return jpeg[:-2] + behind


SLOW = {
    "padding behind a picture": without_end(FILES["jpeg"], b"\xff" * MEGABYTE + b"\0\0"),
    "padding before a header": b"\xff\xd8" + b"\xff" * (4 * MEGABYTE) + FILES["jpeg"][2:],
    "empty comments": b"\xff\xd8" + b"\xff\xfe\0\2" * MEGABYTE + FILES["jpeg"][2:],
    "empty comments behind": without_end(FILES["jpeg"], b"\xff\xfe\0\2" * MEGABYTE),
    "empty chunks": png(9, 9, chunk(b"abCd", b"") * MEGABYTE),
    "empty pieces": png(9, 9, chunk(b"IDAT", b"") * MEGABYTE),
    "a stored stream": png(
        9, 9, chunk(b"IDAT", b"x\x01" + (b"\0\xff\xff\0\0" + b"\0" * 65535) * 480)
    ),
    "empty blocks": FILES["gif"][:-1] + b"!\xfe\0" * MEGABYTE,
    "empty boxes": FILES["avif"] + b"\0\0\0\x08free" * MEGABYTE,
}


def calls_of(function: Callable[[], object]) -> int:
    """How many functions are called meanwhile, of Python and of C."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", SLOW)
def test_no_file_is_taken_apart_without_end(name: str) -> None:
    """Nothing here is large; each has a million pieces, and not each of them is looked at."""

    def read() -> None:
        with contextlib.suppress(InexactError):
            read_image(SLOW[name])

    calls = calls_of(read)
    assert calls < MEGABYTE


def test_files_of_one_size_are_not_one_image() -> None:
    one, other = (read_image(FILES[name]) for name in ("jpeg-exif-1", "jpeg-exif-2"))
    assert one.size == other.size
    assert one != other
