"""What is read without Pillow is what Pillow reads."""

from __future__ import annotations

import io
import random
from typing import Any, Final

import pytest
from PIL import ExifTags, Image

from mmroute.errors import InexactError
from mmroute.images import header
from mmroute.images.plain_headers import PLAIN_BYTES, is_quick, plain_jpeg, plain_png, plain_webp

MUTATIONS: Final = 1500


def written(mode: str, form: str, size: tuple[int, int] = (37, 23), **options: Any) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 64).convert(mode).save(file, form, **options)
    return file.getvalue()


def transparent_webp() -> bytes:
    picture, file = Image.effect_noise((37, 23), 64).convert("RGBA"), io.BytesIO()
    picture.putalpha(Image.effect_noise((37, 23), 64))
    picture.save(file, "WEBP")
    return file.getvalue()


TURNED: Final = Image.Exif()
TURNED[ExifTags.Base.Orientation] = 6
PLAIN: Final = {
    "jpeg": written("RGB", "JPEG"),
    "jpeg of best quality": written("RGB", "JPEG", quality=95, subsampling=0),
    "progressive": written("RGB", "JPEG", progressive=True),
    "with a comment": written("RGB", "JPEG", comment=b"a note"),
    "png": written("RGB", "PNG"),
    "png with alpha": written("RGBA", "PNG"),
    "webp": written("RGB", "WEBP"),
    "webp of best quality": written("RGB", "WEBP", quality=100, method=6),
}
OTHERS: Final = {
    "grey": written("L", "JPEG"),
    "four inks": written("CMYK", "JPEG"),
    "turned": written("RGB", "JPEG", exif=TURNED),
    "with a profile": written("RGB", "JPEG", icc_profile=b"profile"),
    "palette": written("P", "PNG"),
    "with a resolution": written("RGB", "PNG", dpi=(72, 72)),
    "webp with alpha": transparent_webp(),
    "webp without loss": written("RGB", "WEBP", lossless=True),
    "turned webp": written("RGB", "WEBP", exif=TURNED),
}  # fmt: skip


def found(data: bytes) -> object:
    try:
        return header.read_header(io.BytesIO(data))
    except InexactError as inexact:
        return inexact.reason


def by_pillow(data: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(header, "_read_plain", lambda *_, **__: None)
        return found(data)


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_only_plain_files_are_read_without_pillow(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (PLAIN | OTHERS)[name]
    beginning = data[:PLAIN_BYTES]
    found_plain = plain_jpeg(beginning) or plain_png(beginning) or plain_webp(beginning, len(data))
    assert (found_plain is not None) == (name in PLAIN)
    assert found(data) == by_pillow(data, monkeypatch)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_files_take_few_steps(name: str) -> None:
    assert is_quick(PLAIN[name])


@pytest.mark.parametrize("name", PLAIN)
def test_damaged_files_are_read_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(name)
    for _ in range(MUTATIONS // len(PLAIN)):
        data = bytearray(PLAIN[name])
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(min(len(data), 700))] = draw.choice([0, 255, draw.randrange(256)])
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)) :]
        raw = bytes(data)
        assert found(raw) == by_pillow(raw, monkeypatch), raw[:700].hex()
