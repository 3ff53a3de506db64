"""Data URLs: RFC 2397, as far as the engine reads them.

Source: vLLM 0.33.0 ``multimodal/media/connector.py`` and ``multimodal/media/image.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pybase64

from mmroute.errors import InexactError, Reason, invalid, quoted

if TYPE_CHECKING:
    from mmroute.requests.items import ImageFile

MediaSource: TypeAlias = "bytes | bytearray | memoryview | str | os.PathLike[str]"
"""The bytes of a file; a data URL; or the path of a file, which a text never is: what clients
send must not open files here."""

_SCHEME: Final = "data:"
_BEGINNINGS: Final = (1 << 12, 1 << 16)  # characters; headers are usually shorter than the first
_JPEG: Final = "/9j/"  # the first bytes of a JPEG file


class DecodedUrl(str):
    """A data URL that was decoded while the request was read.

    As a text it ends in three dots in the place of its content, which is not base64: nothing takes
    it for a picture by mistake.

    Attributes:
        content: decoded from strict base64.
        images: read from it before, by whether an orientation was applied; None where none are
            kept.
    """

    __slots__ = ("content", "images")
    content: bytes
    images: dict[bool, ImageFile] | None

    @classmethod
    def of(
        cls, head: str, content: bytes, images: dict[bool, ImageFile] | None = None
    ) -> DecodedUrl:
        """The URL that begins with `head`, up to its comma, and has this content."""
        url = cls(f"{head},...")
        url.content, url.images = content, images
        return url


def is_data_url(url: str) -> bool:
    """Whether the engine takes a URL for one that holds its content itself."""
    return url[: len(_SCHEME)].lower() == _SCHEME


def decode_data_url(url: str, reason: Reason = Reason.IMAGE_UNREADABLE) -> bytes:
    """The content of a data URL.

    Args:
        url: begins with ``data:``.
        reason: of the error.

    Raises:
        InexactError: for all but strict base64: no whitespace, no line breaks, the standard
            alphabet, padded.
    """
    if isinstance(url, DecodedUrl):
        return url.content
    start = _content_start(url, reason)
    try:
        return pybase64.b64decode(url[start:], validate=True)
    except ValueError as error:
        raise _not_base64(error, reason) from error


def read_source(source: MediaSource, reason: Reason) -> bytes:
    """The bytes of an image, a video or a recording, wherever they are.

    Args:
        source: what a caller or a client gave.
        reason: of the error for a malformed data URL.

    Raises:
        InexactError: for a malformed data URL; `invalid_request` if it is neither bytes, data URL
            nor path.
        OSError: the path cannot be opened.
    """
    if isinstance(source, str):
        if is_data_url(source):
            return decode_data_url(source, reason)
    elif isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    elif isinstance(source, os.PathLike):
        return Path(source).read_bytes()
    raise invalid(
        f"media are bytes, a data URL or a path, as a pathlib.Path; found {quoted(source)}"
    )


def jpeg_beginnings(url: str) -> Iterator[bytes]:
    """The first 3 KiB of a JPEG file in a data URL, then the first 48; nothing of another file.

    The header of a JPEG file ends where its picture begins, so a beginning that holds all of it
    reads like the whole file. That is not so for other formats.

    Raises:
        InexactError: `image_unreadable` if the URL is not of the form the engine takes, or its
            beginning is malformed.
    """
    start = _content_start(url)
    if not url.startswith(_JPEG, start):
        return
    for length in _BEGINNINGS:
        try:
            yield pybase64.b64decode(url[start : start + length], validate=True)
        except ValueError as error:
            raise _not_base64(error) from error


def _content_start(url: str, reason: Reason = Reason.IMAGE_UNREADABLE) -> int:
    comma = url.find(",")
    if comma < 0:
        raise InexactError(reason, f"the data URL {quoted(url[:40])} has no comma before its data")
    _, semicolon, encoding = url[len(_SCHEME) : comma].rpartition(";")
    if not semicolon or encoding != "base64":
        raise InexactError(
            reason,
            "the engine reads data URLs of the form data:TYPE;base64,... only; this one "
            f"begins {quoted(url[: min(comma + 1, 60)])}",
        )
    return comma + 1


def _not_base64(cause: object, reason: Reason = Reason.IMAGE_UNREADABLE) -> InexactError:
    return InexactError(
        reason,
        f"the data URL is not strict base64 ({cause}); encode it in the standard alphabet, "
        "padded, without line breaks",
    )
