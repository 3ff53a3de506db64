"""A cache of the files in data URLs, because a chat sends its images again with every turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pybase64

from mmroute.images.data_url import DecodedUrl
from mmroute.reuse.prefix_cache import RecentCache

if TYPE_CHECKING:
    from mmroute.requests.items import ImageFile

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
