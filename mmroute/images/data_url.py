"""Data URLs: RFC 2397, as far as the engine reads them.

Source: vLLM ``multimodal/media/connector.py`` and ``multimodal/media/image.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pybase64

from mmroute.errors import InexactError, Reason, invalid, quoted

if TYPE_CHECKING:
    from mmroute.requests.items import ImageFile

MediaSource: TypeAlias = "bytes | bytearray | memoryview | str | os.PathLike[str]"
"""The bytes of a file, a data URL, or the path of a file. A path is never a `str`, because texts
come from clients, who must not be able to open files."""

_SCHEME: Final = "data:"


class DecodedUrl(str):
    """A data URL that was decoded while the request was read.

    Its text has three dots in place of the content. They are not base64, so they cannot be mistaken
    for a picture.
    """

    __slots__ = ("content", "images")
    content: bytes  # the bytes, decoded from strict base64
    # The cache of images read from the content, as in `KnownFile`; None for no cache.
    images: dict[bool, ImageFile] | None

    @classmethod
    def of(
        cls, head: str, content: bytes, images: dict[bool, ImageFile] | None = None
    ) -> DecodedUrl:
        """The URL that begins with `head`, up to its comma, and has this content."""
        url = cls(f"{head},...")
        url.content, url.images = content, images
        return url

    def written(self) -> str:
        """The URL as the client wrote it."""
        head, _, _ = self.partition(",")
        return f"{head},{pybase64.b64encode(self.content).decode('ascii')}"


def is_data_url(url: str) -> bool:
    """Whether the engine reads a URL as a data URL."""
    return url[: len(_SCHEME)].lower() == _SCHEME


def decode_data_url(url: str, reason: Reason = Reason.IMAGE_UNREADABLE) -> bytes:
    """The content of a data URL."""
    if isinstance(url, DecodedUrl):
        return url.content
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
    try:
        return pybase64.b64decode(url[comma + 1 :], validate=True)
    except ValueError as error:
        raise InexactError(
            reason,
            f"the data URL is not strict base64 ({error}); encode it in the standard alphabet, "
            "padded, without line breaks",
        ) from error


def read_source(source: MediaSource, reason: Reason) -> bytes:
    """The bytes of an image, a video or audio."""
    if isinstance(source, str):
        if is_data_url(source):
            return decode_data_url(source, reason)
    elif isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    elif isinstance(source, os.PathLike):
        return Path(source).read_bytes()
    raise invalid(f"media must be bytes, a data URL or a pathlib.Path; found {quoted(source)}")
