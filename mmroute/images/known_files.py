"""Files of data URLs that come again: a chat sends its images with every turn.

What is known of a file is found by its base64 text, all of which is compared: a file that differs
in one byte is another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pybase64

from mmroute.images.data_url import DecodedUrl
from mmroute.reuse.prefix_cache import RecentCache

if TYPE_CHECKING:
    from mmroute.requests.items import ImageFile

_WORTH_KEEPING: Final = 1 << 12  # characters; less is decoded in no time
_LONGEST_HEAD: Final = 128
_BASE64: Final = ";base64"
_BEGINNING: Final = 256
_END: Final = 64
_STEP: Final = 16_381  # of one character to the next one, in between
_OVERHEAD: Final = 512  # bytes of an entry, beside what it holds


class KnownFile(NamedTuple):
    """A file, with what was computed of it.

    Attributes:
        text: in base64.
        content: decoded.
        images: read from it, by whether an orientation in it was applied.
    """

    text: bytes
    content: bytes
    images: dict[bool, ImageFile]

    def is_at(self, raw: bytes, text: slice) -> bool:
        """Whether a base64 text is that of this file, to the last character."""
        same_size = text.stop - text.start == len(self.text)
        return same_size and raw.startswith(self.text, text.start)


class KnownFiles(RecentCache[int, KnownFile | None]):
    """A bounded cache; the least recently used files go first. Safe to share between threads.

    A file is kept when it comes for the second time: most come once. `stats` counts bytes of
    base64, and among the entries also files that came once.

    Args:
        max_bytes: of all that is kept; 0 to keep nothing.
    """

    def of_url(self, url: str) -> str:
        """A data URL with what is known of its file; the URL itself where nothing is.

        Args:
            url: begins with ``data:``.
        """
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
        """A file that came before; None for one that is new, or too small to be kept.

        Args:
            raw: what holds its base64 text: bytes, or ASCII characters.
            text: where in it.

        Raises:
            ValueError: it is no strict base64.
        """
        if text.stop - text.start < _WORTH_KEEPING:
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
        if isinstance(raw, str):
            raw = raw.encode()
        found = known if known is not None and known.is_at(raw, text) else None
        with self._lock:
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._reused += len(found.text)
                if sample in self._recent:
                    self._recent.move_to_end(sample)
        if known is not None:  # to keep one after the other would cost more than to keep none
            return found
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
    """A number that most other texts do not have: of the parts where files mostly differ."""
    start, end = text.start, text.stop
    parts = raw[start : start + _BEGINNING], raw[start:end:_STEP], raw[end - _END : end]
    return hash(parts)


def _size(known: KnownFile | None) -> int:
    return _OVERHEAD + (len(known.text) + len(known.content) if known else 0)
