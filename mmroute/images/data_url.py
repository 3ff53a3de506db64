"""Data URLs, as far as the engine reads them, and a cache of their files, which chats repeat.

Source: vLLM ``multimodal/media/connector.py`` and ``multimodal/media/image.py``; RFC 2397.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pybase64

from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import ImageFile
from mmroute.reuse.prefix_cache import RecentCache

_MIN_CACHED_CHARS: Final = 1 << 12  # a shorter file takes no time to decode
_LONGEST_HEAD: Final = 128
_BASE64: Final = ";base64"
_BEGINNING: Final = 256
_END: Final = 64
_STEP: Final = 16_381  # the distance of the sampled characters between beginning and end
_OVERHEAD: Final = 512  # the bytes that an entry takes beside its text and content


class KnownFile(NamedTuple):
    """A file, with the images that were read from it."""

    text: bytes | str  # the file in base64, of the type in which it came when it was kept
    content: bytes
    # The image of the file, with its orientation applied (True) and not applied (False), as far as
    # it has been read.
    images: dict[bool, ImageFile]

    def is_at(self, raw: bytes | str, text: slice) -> bool:
        """Whether the slice `text` of `raw` is the base64 text of this file."""
        own = self.text
        if text.stop - text.start != len(own):
            return False
        if isinstance(raw, str):
            return raw.startswith(own if isinstance(own, str) else own.decode(), text.start)
        return raw.startswith(own.encode() if isinstance(own, str) else own, text.start)


class KnownFiles(RecentCache[int, KnownFile | None]):
    """A bounded cache; the least recently used files go first. Safe to share between threads.

    A file is kept when it comes for the second time, because most come only once. `stats` counts
    bytes of base64. Its entries include files that came once.
    """

    def of_url(self, url: str) -> str:
        """The data URL with its decoded file, if the file is in the cache; else the URL itself."""
        head, comma, _ = url[:_LONGEST_HEAD].partition(",")
        is_read = comma and head.endswith(_BASE64) and url.isascii()
        if not is_read or isinstance(url, DecodedUrl):
            return url
        try:
            known = self.find(url, slice(len(head) + 1, len(url)))
        except ValueError:
            return url
        return url if known is None else DecodedUrl.of(head, known.content, known.images)

    def find(self, raw: bytes | str, text: slice) -> KnownFile | None:
        """A file that came before; None for one that is new, or too small to be kept."""
        if text.stop - text.start < _MIN_CACHED_CHARS:
            return None
        sample = _sample(raw, text)
        try:  # one look into a dictionary needs no lock
            known = self._recent[sample]
        except KeyError:
            with self._lock:
                self._misses += 1
                self._keep(sample, None)
            return None
        # Without the lock: this takes longer the longer the text is.
        hit = known if known is not None and known.is_at(raw, text) else None
        with self._lock:
            if hit is None:
                self._misses += 1
            else:
                self._hits += 1
                self._reused += len(hit.text)
                if sample in self._recent:
                    self._recent.move_to_end(sample)
        if known is not None:  # two files with one sample would replace each other at every turn
            return hit
        copied = raw[text]
        file = KnownFile(copied, pybase64.b64decode(copied, validate=True), {})
        with self._lock:
            self._keep(sample, file)
        return file

    def _keep(self, sample: int, known: KnownFile | None) -> None:
        if _size(known) > self._max_bytes:
            return
        if sample in self._recent:
            self._bytes -= _size(self._recent.pop(sample))
        self._recent[sample] = known
        self._bytes += _size(known)
        while self._bytes > self._max_bytes:
            self._bytes -= _size(self._recent.popitem(last=False)[1])


def _sample(raw: bytes | str, text: slice) -> int:
    """A hash of parts of a text, chosen so that different files rarely have the same hash."""
    start, end = text.start, text.stop
    parts = raw[start : start + _BEGINNING], raw[start:end:_STEP], raw[end - _END : end]
    return hash(parts)


def _size(known: KnownFile | None) -> int:
    return _OVERHEAD + (len(known.text) + len(known.content) if known else 0)


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
