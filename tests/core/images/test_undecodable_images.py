"""Pictures that Pillow opens: exact only where the engine decodes them and makes them RGB."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import struct
import zlib
from collections.abc import Sequence

import pytest
from media_files import chunk
from PIL import Image, ImageOps

from mmroute import InexactError, read_image

WIDTH, HEIGHT = 21, 13
SHORT, LONG = 3, 4


def loaded(data: bytes) -> tuple[int, int] | None:
    """The size that vLLM 0.33.0 ``multimodal/media/image.py`` loads; None where it cannot."""
    try:
        image: Image.Image = Image.open(io.BytesIO(data))
        with contextlib.suppress(Exception):
            image = ImageOps.exif_transpose(image)
        image.load()
        return image.convert("RGB").size
    except Exception:  # noqa: BLE001 - Pillow raises of many kinds for broken files
        return None


def read(data: bytes) -> tuple[int, int] | None:
    """The size that mmroute answers; None where it refuses the file."""
    try:
        size = read_image(data).size
    except InexactError:
        return None
    return size.width, size.height


def noise(mode: str = "RGB") -> Image.Image:
    data = random.Random(WIDTH).randbytes(WIDTH * HEIGHT * len(mode))
    return Image.frombytes(mode, (WIDTH, HEIGHT), data)


def jpeg(mode: str, *, progressive: bool) -> bytes:
    file = io.BytesIO()
    noise(mode).save(file, "JPEG", progressive=progressive, restart_marker_blocks=2)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [True, False])
def test_a_damaged_scan_is_exact_only_where_the_decoder_comes_to_its_end(
    mode: str, progressive: bool
) -> None:
    whole = jpeg(mode, progressive=progressive)
    scans = whole.index(b"\xff\xda") + 14
    rng = random.Random(1)
    refused = 0
    for code in range(1, 255):
        at = rng.randrange(scans, len(whole) - 4)
        damaged = whole[:at] + bytes([0xFF, code]) + whole[at + 2 :]
        found, answer = loaded(damaged), read(damaged)
        assert answer in (None, found), f"marker {code:#x} at {at}"
        assert progressive or answer == found
        refused += found is None
    assert bool(refused) is progressive


def test_of_cut_jpeg_files_the_decoder_reads_only_some_that_lack_the_end_marker() -> None:
    readable = []
    for quality in range(1, 96):
        file = io.BytesIO()
        noise().save(file, "JPEG", quality=quality)
        for cut in (1, 2, 3, 4, 9, 50):
            found = loaded(data := file.getvalue()[:-cut])
            assert read(data) in (None, found)
            readable += [cut] if found else []
    assert set(readable) == {1, 2}
    assert len(readable) < 0.1 * 2 * 95


def tiff(
    bits: Sequence[int], photometric: int, *, planar: int, extra: int | None, deflated: bool
) -> bytes:
    """A picture in one strip for each plane."""
    planes = bits if planar == 2 else [sum(bits)]
    strips = [bytes(HEIGHT * -(-WIDTH * plane // 8)) for plane in planes]
    if deflated:
        strips = [zlib.compress(strip) for strip in strips]
    starts = list(itertools.accumulate(map(len, strips), initial=8))
    tags = {
        256: (SHORT, [WIDTH]), 257: (SHORT, [HEIGHT]), 258: (SHORT, bits),
        259: (SHORT, [8 if deflated else 1]), 262: (SHORT, [photometric]),
        273: (LONG, starts[:-1]), 277: (SHORT, [len(bits)]), 278: (SHORT, [HEIGHT]),
        279: (LONG, [len(strip) for strip in strips]), 284: (SHORT, [planar]),
    }  # fmt: skip
    if photometric == 3:
        tags[320] = (SHORT, [0] * (3 << bits[0]))
    if extra is not None:
        tags[338] = (SHORT, [extra])
    directory, behind = struct.pack("<H", len(tags)), b""
    for tag, (kind, values) in sorted(tags.items()):
        value = struct.pack(f"<{len(values)}{'H' if kind == SHORT else 'I'}", *values)
        if len(value) > 4:
            start = starts[-1] + 6 + 12 * len(tags) + len(behind)
            behind += value
            value = struct.pack("<I", start)
        directory += struct.pack("<HHI", tag, kind, len(values)) + value.ljust(4, b"\0")
    head = struct.pack("<2sHI", b"II", 42, starts[-1])
    return b"".join([head, *strips, directory, bytes(4), behind])


KINDS = {
    "1": ((1,), 1), "2": ((2,), 1), "4": ((4,), 1), "8": ((8,), 1), "16": ((16,), 1),
    "32": ((32,), 1), "palette-2": ((2,), 3), "palette-8": ((8,), 3), "gray-alpha": ((8, 8), 1),
    "rgb": ((8, 8, 8), 2), "rgb-16": ((16, 16, 16), 2), "rgba": ((8, 8, 8, 8), 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiff_file_is_exact_only_where_its_samples_are_decoded(kind: str) -> None:
    bits, photometric = KINDS[kind]
    answers = []
    for planar, extra, deflated in itertools.product((1, 2), (None, 0, 1, 2), (False, True)):
        data = tiff(bits, photometric, planar=planar, extra=extra, deflated=deflated)
        found, answer = loaded(data), read(data)
        assert answer in (None, found), (planar, extra, deflated)
        answers.append(answer)
    assert kind in ("2", "palette-2", "rgb-16") or (WIDTH, HEIGHT) in answers


def png(before: bytes, rows: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + before + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


ROWS = zlib.compress(bytes(HEIGHT * (1 + 3 * WIDTH)), 0)


@pytest.mark.parametrize("animated", [True, False])
@pytest.mark.parametrize(
    ("width", "height", "decoded"),
    [(WIDTH, HEIGHT, True), (5, 4, True), (0, HEIGHT, False), (WIDTH, 0, False), (0, 0, False)],
)
def test_the_first_frame_of_an_animation_must_have_pixels(
    width: int, height: int, decoded: bool, animated: bool
) -> None:
    frame = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, width, height, 0, 0, 1, 10, 0, 0))
    before = chunk(b"acTL", struct.pack(">II", 2, 0)) + frame if animated else frame
    data = png(before, ROWS)
    assert read(data) == loaded(data) == ((WIDTH, HEIGHT) if decoded else None)


def test_a_compressed_picture_must_be_long_enough_for_its_pixels() -> None:
    assert read(png(b"", ROWS)) == loaded(png(b"", ROWS)) == (WIDTH, HEIGHT)
    assert read(png(b"", b"")) is loaded(png(b"", b"")) is None
