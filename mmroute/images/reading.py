"""Reads an image item from bytes, a file or a data URL."""

from __future__ import annotations

import io
from dataclasses import replace

from mmroute.errors import Reason
from mmroute.images.data_url import DecodedUrl, MediaSource, read_source
from mmroute.requests.checks import checked_uuid
from mmroute.requests.items import Identity, ImageFile, ImageSize


def read_image(source: MediaSource, *, uuid: str | None = None, upright: bool = True) -> ImageFile:
    """Read an image, so that its token count and identity are known.

    The size comes from the file's header. The picture is checked for completeness and not decoded.
    The bytes are kept, because the engine computes the image identity from them.

    Args:
        source: the bytes, data URL or path of a JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF file.
        uuid: the client's own name for the image.
        upright: whether the engine applies an orientation stored in the file; vLLM does.

    Raises:
        InexactError: `image_unreadable` if the engine would not read the file, or the file ends too
            early; `image_refused` if its header has more pixels than the engine decodes;
            `invalid_request` if `source` is none of these, or `uuid` is not a string.
        OSError: the path cannot be opened.

    >>> url = "data:image/gif;base64,R0lGODlhAgABAIAAAP///wAAACwAAAAAAgABAAACAgRKADs="
    >>> read_image(url).size
    ImageSize(width=2, height=1, uuid=None)
    """
    uuid = checked_uuid(uuid)
    known = source.images if isinstance(source, DecodedUrl) else None
    if known and upright in known:
        return _named(known[upright], uuid)
    from mmroute.images.header import read_header  # Pillow is loaded when needed

    data = read_source(source, Reason.IMAGE_UNREADABLE)
    header = read_header(io.BytesIO(data))
    stored = unturned = ImageSize(*header.stored)
    if header.unturned != header.stored:
        unturned = ImageSize(*header.unturned)
    size = ImageSize(*(header.upright if upright else header.unturned))
    identities: dict[object, Identity] | None = None if known is None else {}
    image = ImageFile(size, stored, unturned, header.converted, header.mode, data, identities)
    if known is not None:
        known[upright] = image
    return _named(image, uuid)


def _named(image: ImageFile, uuid: str | None) -> ImageFile:
    return image if uuid is None else replace(image, size=replace(image.size, uuid=uuid))
