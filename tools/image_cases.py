"""Image files of every kind, and the requests that carry them."""

from __future__ import annotations

import base64
import functools
import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from cases import Case, case, text, user
from PIL import Image, PngImagePlugin

ORIENTATION, RESOLUTION, XMP_TAG = 274, 282, 700
ASCII, SHORT = 2, 3
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description '
    b'tiff:Orientation="%d"/></rdf:RDF></x:xmpmeta>'
)
# A request names a file by this scheme; the name stands for its data URL.
SCHEME = "file:"


@functools.cache
def image_files() -> dict[str, bytes]:
    """One small file of every kind, by name."""
    return {**_jpeg(), **_png(), **_others(), **_broken()}


def _picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    picture = Image.linear_gradient("L").resize((width, height))
    bands = (picture, picture.rotate(180), picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM))
    return Image.merge("RGB", bands).convert(mode)


def _saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _exif(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif.tobytes()


def _exif_with(*entries: tuple[int, int, bytes]) -> bytes:
    """EXIF data of entries that Pillow would not write: tag, type, up to four bytes."""
    size = {SHORT: 2, ASCII: 1}
    table = b"".join(
        struct.pack("<HHI4s", tag, kind, len(value) // size[kind], value)
        for tag, kind, value in entries
    )
    return b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + table + b"\0\0\0\0"


def _jpeg() -> dict[str, bytes]:
    plain = _saved(_picture(93, 31), "JPEG")
    files = {
        "jpeg": plain,
        "jpeg-gray": _saved(_picture(25, 139, "L"), "JPEG"),
        "jpeg-cmyk": _saved(_picture(40, 60, "CMYK"), "JPEG"),
        "jpeg-progressive": _saved(_picture(64, 48), "JPEG", progressive=True),
        "jpeg-xmp-8": _saved(_picture(90, 30), "JPEG", xmp=XMP % 8),
        "jpeg-exif-1-xmp-6": _saved(_picture(90, 30), "JPEG", exif=_exif(1), xmp=XMP % 6),
        "jpeg-behind-70-kb": _saved(_picture(90, 30), "JPEG", comment=b" " * 65000, exif=_exif(6)),
        "jpeg-trailing-bytes": plain + b"trailing",
        "mpo": _several(),
        "mpo-exif-6": _several(exif=_exif(6)),
        "mpo-progressive": _several(progressive=True),
    }
    unwritable = _exif_with((ORIENTATION, SHORT, b"\6\0"), (RESOLUTION, ASCII, b"72\0"))
    files["jpeg-exif-6-unwritable"] = _saved(_picture(86, 24), "JPEG", exif=unwritable)
    for orientation in range(10):
        exif = _exif(orientation)
        files[f"jpeg-exif-{orientation}"] = _saved(_picture(86, 24), "JPEG", exif=exif)
    return files


def _several(**options: Any) -> bytes:
    """A picture with a preview behind it, as cameras and phones write it."""
    preview = _picture(32, 24)
    return _saved(_picture(96, 32), "MPO", save_all=True, append_images=[preview], **options)


def _png() -> dict[str, bytes]:
    note = PngImagePlugin.PngInfo()
    note.add_itxt("XML:com.adobe.xmp", (XMP % 6).decode())
    more = [_picture(60, 50), _picture(60, 50).rotate(90)]
    plain = _saved(_picture(50, 120), "PNG")
    deep = Image.new("I;16", (30, 40), 1000)
    files = {
        "png": plain,
        "png-exif-6": _saved(_picture(81, 39), "PNG", exif=_exif(6)),
        "png-exif-6-behind": _with_chunk(_saved(_picture(81, 39), "PNG"), b"eXIf", _exif(6)[6:]),
        "png-xmp-6": _saved(_picture(81, 39), "PNG", pnginfo=note),
        "png-rgb-trns": _saved(_picture(30, 30), "PNG", transparency=(1, 2, 3)),
        "png-palette-trns": _saved(_picture(70, 20, "P"), "PNG", transparency=3),
        "png-gray-16": _saved(deep, "PNG"),
        "png-animated": _saved(_picture(60, 50), "PNG", save_all=True, append_images=more),
        "png-no-iend": plain[:-12],
        "cut-png-by-a-note": _with_picture_of_pieces(plain, b"tEXt", b"note\0between"),
    }
    for mode in ("RGBA", "P", "L", "LA", "1"):
        files[f"png-{mode.lower()}"] = _saved(_picture(72, 44, mode), "PNG")
    return files


def _with_chunk(png: bytes, name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    chunk = struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
    return png[:-12] + chunk + png[-12:]


def _with_picture_of_pieces(png: bytes, name: bytes, data: bytes) -> bytes:
    """A file with its picture in two pieces, and a chunk between them."""
    at = png.index(b"IDAT")
    length = int.from_bytes(png[at - 4 : at], "big")
    picture = png[at + 4 : at + 4 + length]
    chunks = ((b"IDAT", picture[:20]), (name, data), (b"IDAT", picture[20:]))
    middle = b"".join(
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks
    )
    return png[: at - 4] + middle + png[at + length + 8 :]


def _others() -> dict[str, bytes]:
    more = [_picture(60, 50).rotate(90)]
    return {
        "webp": _saved(_picture(88, 58), "WEBP"),
        "webp-lossless": _saved(_picture(88, 58), "WEBP", lossless=True),
        "webp-alpha": _saved(_translucent(88, 58), "WEBP"),
        "webp-exif-6": _saved(_picture(88, 58), "WEBP", exif=_exif(6)),
        "webp-animated": _saved(_picture(60, 50), "WEBP", save_all=True, append_images=more),
        "gif": _saved(_picture(77, 41), "GIF"),
        "gif-animated": _saved(_picture(60, 50), "GIF", save_all=True, append_images=more),
        "bmp": _saved(_picture(17, 27), "BMP"),
        "bmp-palette": _saved(_picture(18, 12, "P"), "BMP"),
        "tiff": _saved(_picture(20, 35), "TIFF"),
        "tiff-exif-6": _saved(_picture(30, 20), "TIFF", tiffinfo={ORIENTATION: 6}),
        "tiff-xmp-6": _saved(_picture(90, 30), "TIFF", tiffinfo={XMP_TAG: XMP % 6}),
        "tiff-gray-lzw": _saved(_picture(30, 22, "L"), "TIFF", compression="tiff_lzw"),
        "avif": _saved(_picture(64, 50), "AVIF"),
        "avif-alpha": _saved(_translucent(64, 50), "AVIF"),
        "avif-exif-6": _saved(_picture(64, 50), "AVIF", exif=_exif(6)),
    }


def _translucent(width: int, height: int) -> Image.Image:
    picture = _picture(width, height, "RGBA")
    picture.putalpha(Image.linear_gradient("L").resize((width, height)))
    return picture


def _broken() -> dict[str, bytes]:
    kinds = {
        "jpeg": "JPEG",
        "png": "PNG",
        "webp": "WEBP",
        "gif": "GIF",
        "bmp": "BMP",
        "tiff": "TIFF",
    }
    files = {}
    for name, kind in kinds.items():
        whole = _saved(_picture(60, 40), kind)
        files[f"cut-{name}"] = whole[: len(whole) * 2 // 3]
        files[f"cut-{name}-header"] = whole[:11]
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header
    return files | {
        "cut-jpeg-last-byte": _saved(_picture(60, 40), "JPEG")[:-1],
        "cut-mpo": _several()[:900],
        "bomb": bomb + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + b"\0\0\0\0IDAT",
        "html": b"<!doctype html><title>404</title>",
        "empty": b"",
    }


def data_url(data: bytes, mime: str = "image/png") -> str:
    """A file as clients send it."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def image_cases(files: Mapping[str, bytes]) -> Iterator[Case]:
    """All requests. They name files, except where the spelling of the URL is what matters."""
    broken = _broken()
    for name in files:
        tag = "broken" if name in broken else "file"
        yield case(name, tag, messages=[user(image(name), text("What is this?"))])
    yield from _urls(files["png"])
    yield from _requests()


def image(name: str, **fields: Any) -> dict[str, Any]:
    """An image part."""
    return {"type": "image_url", "image_url": {"url": SCHEME + name}, **fields}


def _urls(data: bytes) -> Iterator[Case]:
    url = data_url(data)
    body = url.partition(",")[2]
    spellings = {
        "upper-scheme": "DATA:" + url[5:],
        "wrong-mime": data_url(data, "image/jpeg"),
        "no-mime": f"data:;base64,{body}",
        "parameters": f"data:image/png;name=a.png;base64,{body}",
        "slashes": f"data://image/png;base64,{body}",
        "upper-base64": f"data:image/png;BASE64,{body}",
        "space-base64": f"data:image/png; base64,{body}",
        "charset-behind": f"data:image/png;base64;charset=utf-8,{body}",
        "only-base64": f"data:base64,{body}",
        "no-base64": f"data:image/png,{body}",
        "no-comma": f"data:image/png;base64{body}",
        "no-scheme": body,
        "space-in-front": f" {url}",
        "line-breaks": f"data:image/png;base64,{body[:76]}\n{body[76:]}",
        "line-break-at-end": f"{url}\n",
        "url-safe": f"data:image/png;base64,{body.replace('+', '-').replace('/', '_')}",
        "unpadded": url.rstrip("=") if url.endswith("=") else url[:-1],
        "percent": url + "%3D",
        "not-ascii": url[:-4] + "ä" + url[-3:],
        "nothing": "data:image/png;base64,",
    }
    for name, spelling in spellings.items():
        part = {"type": "image_url", "image_url": {"url": spelling}}
        yield case(f"url-{name}", "url", messages=[user(part, text("What?"))])


def _requests() -> Iterator[Case]:
    ask = text("What is this?")
    lora = {"lora_name": "ad3", "lora_int_id": 4, "lora_path": "/adapters/ad3"}
    answer = {"role": "assistant", "content": "A gradient."}
    turns = [user(image("jpeg"), ask), answer, user(image("png-rgba"), image("jpeg"), text("And?"))]
    requests: dict[str, dict[str, Any]] = {
        "same-twice": {"messages": [user(image("jpeg"), image("jpeg"), ask)]},
        "text-between": {"messages": [user(image("gif"), text("and"), image("webp"), ask)]},
        "turns": {"messages": turns},
        "uuid": {"messages": [user(image("jpeg", uuid="my-image"), image("png"), ask)]},
        "uuid-twice": {"messages": [user(image("jpeg", uuid="a"), image("jpeg", uuid="a"), ask)]},
        "uuid-empty": {"messages": [user(image("jpeg", uuid=""), image("jpeg", uuid=""), ask)]},
        "uuid-unicode": {"messages": [user(image("jpeg", uuid="Bild-ä-图"), ask)]},
        "uuid-of-broken": {"messages": [user(image("cut-jpeg", uuid="known"), ask)]},
        "tags-out-of-order": {
            "messages": [
                user(
                    text("<|image_2|> and <|image_1|>"),
                    image("jpeg", uuid="first"),
                    image("png-exif-6", uuid="second"),
                )
            ]
        },
        "type-image-with-a-url": {
            "messages": [user(image("jpeg") | {"type": "image"}, ask)],
        },
        "salt": {"messages": [user(image("jpeg"), ask)], "cache_salt": "tenant-0"},
        "lora": {"messages": [user(image("jpeg"), ask)], "lora": lora},
        "lora-salt": {"messages": turns, "lora": lora, "cache_salt": "ad3"},
        "text-only": {"messages": [user(text("Tell me a long story. " * 20))]},
        "text-salt-lora": {"messages": [user(text("x " * 60))], "lora": lora, "cache_salt": "s"},
        "kwargs": {
            "messages": [user(image("jpeg"), ask)],
            "mm_processor_kwargs": {"unknown": 3, "other": [1, 2.5, True, None, "x"]},
        },
        "kwargs-empty": {"messages": [user(image("png-l"), ask)], "mm_processor_kwargs": {}},
        "kwargs-videos": {
            "messages": [user(image("jpeg"), ask)],
            "mm_processor_kwargs": {"videos_kwargs": {"fps": 2}, "do_rescale": True},
        },
        "uuid-kwargs": {
            "messages": [user(image("jpeg", uuid="u"), ask)],
            "mm_processor_kwargs": {"unknown": -1},
        },
    }
    for name, request in requests.items():
        yield case(name, "request", **request)
