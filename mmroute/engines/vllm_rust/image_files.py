"""Identities of image files, and those that the frontend's decoder reads otherwise than Pillow.

The decoder is the crate image 0.25, with JPEG, PNG, WebP, GIF, BMP and TIFF. Compared with the
running frontend.

Source: vLLM ``rust/src/chat/src/multimodal.rs`` (`prepare_multimodal_timed`), and the crate
llm-multimodal, which fetches, hashes and decodes files.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final
from zlib import crc32

from blake3 import blake3

from mmroute.errors import InexactError, Reason
from mmroute.requests.items import Identity, IdentitySource, ImageFile, Item


def file_identity(item: Item, *, turned: bool = True, **_known: Any) -> Identity | None:
    """See `mmroute.engine.Identify`: the digest of the file alone, without the model."""
    if isinstance(item, ImageFile):
        from mmroute.engines.vllm_rust.image_files import check_file  # takes 20 ms: Pillow

        check_file(item, turned=turned)
    uuid = item.size.uuid
    if uuid is not None:
        return Identity(uuid, IdentitySource.UUID)
    if not isinstance(item, ImageFile):
        return None
    return Identity(blake3(item.data).hexdigest(), IdentitySource.CONTENT_HASH)


_TIFF: Final = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_BOX: Final = slice(4, 8), b"ftyp"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_END: Final = b"IEND"
_PNG_AROUND: Final = 12  # bytes of a chunk beside its data: length, name and checksum
_BMP: Final = b"BM"
_BMP_SIZE: Final = slice(2, 6)
_EXIF_OF_JPEG: Final = b"Exif\0\0"
_EXIF_MARKS: Final = (_EXIF_OF_JPEG, b"eXIf", b"EXIF")  # the others are of PNG and WebP
_BYTE_ORDERS: Final = {b"II*\0": "<", b"MM\0*": ">"}
_ORIENTATION: Final = (0x112, 3, 1)  # the tag, as one short integer
_TURNED: Final = range(5, 9)


def check_file(image: ImageFile, *, turned: bool) -> None:
    """Refuse a file that the frontend refuses, or may read otherwise than Pillow."""
    data = image.data
    where, box = _BOX
    if data.startswith(_TIFF) or data[where] == box:
        raise _unreadable("reads no AVIF, and TIFF by rules that are not covered; send JPEG or PNG")
    if data.startswith(_PNG) and not _has_whole_chunks(data):
        raise _unreadable("wants all chunks of a PNG file, with their checksums")
    if data.startswith(_BMP) and int.from_bytes(data[_BMP_SIZE], "little") > len(data):
        raise _unreadable("wants all rows of a BMP file, and their padding")
    if turned and image.stored.width != image.stored.height:
        _check_orientation(image)


def _check_orientation(image: ImageFile) -> None:
    data, stored = image.data, image.stored
    if data.count(_EXIF_OF_JPEG) > 1:  # Pillow takes the first, the decoder another
        raise _unreadable("may take the orientation of another part of this file; send it upright")
    turned = (image.size.width, image.size.height) != (stored.width, stored.height)
    if (turned or any(mark in data for mark in _EXIF_MARKS)) and turned != _is_turned(data):
        raise _unreadable("finds another orientation in this file than Pillow; send it upright")


def _has_whole_chunks(data: bytes) -> bool:
    at = len(_PNG)
    while at + _PNG_AROUND <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        checked = data[at + 4 : end]
        if crc32(checked).to_bytes(4, "big") != data[end : end + 4]:
            return False
        if checked[:4] == _PNG_END:
            return True
        at = end + 4
    return False


def _is_turned(data: bytes) -> bool:
    """Whether the EXIF data before the picture turn it; those of XMP do not count."""
    from PIL import Image  # slow to import, and only files need it

    with Image.open(io.BytesIO(data)) as image:
        exif = image.info.get("exif", b"")
        if image.format != "WEBP":  # where the mark belongs to the data, which are then no TIFF
            exif = exif.removeprefix(_EXIF_OF_JPEG)
    order = _BYTE_ORDERS.get(exif[:4])
    if order is None:
        return False
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, at)
        for entry in range(entries):
            *kind, value = struct.unpack_from(f"{order}HHIH", exif, at + 2 + 12 * entry)
            if tuple(kind) == _ORIENTATION:
                return value in _TURNED
    except struct.error:
        pass
    return False


def _unreadable(what: str) -> InexactError:
    return InexactError(Reason.IMAGE_UNREADABLE, f"the decoder of vLLM's Rust frontend {what}")
