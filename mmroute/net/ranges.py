"""A file behind a link, from which only the parts that are read are fetched."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

FIRST_PART: Final = 1 << 18
"""The number of bytes that are fetched first."""


class RangeFile(io.RawIOBase):
    """A seekable file that holds one part of the file behind a link, and fetches others."""

    def __init__(self, first: bytes, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self._part = first
        self._start = 0
        self._size = size
        self._fetch = fetch
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(begin + offset, 0)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, fewer only at the end of the file."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        if not (self._start <= self._at and end <= self._start + len(self._part)):
            self._hold(end)
        data = self._part[self._at - self._start : end - self._start]
        self._at = end
        return data

    def _hold(self, end: int) -> None:
        """Fetch the missing bytes up to an offset, and more if reading continues the part."""
        behind = self._start + len(self._part)
        if self._start <= self._at <= behind:
            until = min(max(end, behind + len(self._part)), self._size)
            self._part += self._fetch(behind, until)
        else:
            until = min(max(end, self._at + FIRST_PART), self._size)
            self._part, self._start = self._fetch(self._at, until), self._at
