"""Names of images under vLLM's Rust frontend.

Source: vLLM ``rust/src/chat/src/multimodal.rs`` (`prepare_multimodal_timed`), and the crate
llm-multimodal, which fetches, hashes and decodes files. Compared with the running frontend.
"""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

from blake3 import blake3

from mmroute.errors import InexactError, Reason
from mmroute.requests.items import Identity, IdentitySource, ImageFile, Item

# The decoder reads no AVIF. Of TIFF it reads fewer kinds than Pillow, and turns none.
_TIFF: Final = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_BOX: Final = slice(4, 8), b"ftyp"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_END: Final = b"IEND"
_PNG_AROUND: Final = 12  # bytes of a chunk beside its data: length, name and checksum
_BMP: Final = b"BM"
_BMP_SIZE: Final = slice(2, 6)


def file_identity(item: Item, **_known: Any) -> Identity | None:
    """See `mmroute.engines.profile.Identify`: the digest of the file alone, without the model.

    Raises:
        InexactError: `image_unreadable`: the frontend does not decode the file, or it is not sure.
    """
    if isinstance(item, ImageFile):
        _check_format(item.data)
    uuid = item.size.uuid
    if uuid is not None:
        return Identity(uuid, IdentitySource.UUID)
    if not isinstance(item, ImageFile):
        return None
    return Identity(blake3(item.data).hexdigest(), IdentitySource.CONTENT_HASH)


def _check_format(data: bytes) -> None:
    """Refuse what its decoder does not take of the files that Pillow opens."""
    where, box = _BOX
    if data.startswith(_TIFF) or data[where] == box:
        raise _unreadable("reads no AVIF, and TIFF by rules that are not covered; send JPEG or PNG")
    if data.startswith(_PNG) and not _has_whole_chunks(data):
        raise _unreadable("wants all chunks of a PNG file, with their checksums")
    if data.startswith(_BMP) and int.from_bytes(data[_BMP_SIZE], "little") > len(data):
        raise _unreadable("wants all rows of a BMP file, and their padding")


def _has_whole_chunks(data: bytes) -> bool:
    at = len(_PNG)
    while at + _PNG_AROUND <= len(data):
        body = at + 4, at + 8 + int.from_bytes(data[at : at + 4], "big")
        checked = data[slice(*body)]
        if crc32(checked).to_bytes(4, "big") != data[body[1] : body[1] + 4]:
            return False
        if checked[:4] == _PNG_END:
            return True
        at = body[1] + 4
    return False


def _unreadable(what: str) -> InexactError:
    return InexactError(Reason.IMAGE_UNREADABLE, f"the decoder of vLLM's Rust frontend {what}")
