"""Finds, among the byte strings it keeps, one that begins like a new one.

A string is known by the hashes of its first kilobyte, of its first two, and so on at growing
distances, each continuing the one before. The longest of them that is known leads to an entry;
the caller compares what the entry really holds, so that a hash only ever costs or saves time.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Generic, TypeVar

import xxhash

from mmroute.fast_paths import ReuseStats

__all__ = ["PrefixIndex"]

_FIRST: Final = 1024
_GROWTH: Final = 4  # a distance is a quarter of what lies before it
_OVERHEAD: Final = 512  # bytes of an entry and its marks, beside what it holds

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, eq=False)
class _Kept(Generic[Entry]):
    value: Entry
    marks: tuple[int, ...]
    size: int


class PrefixIndex(Generic[Entry]):
    """A bounded index; the entries used longest ago go first. Safe to share between threads.

    Args:
        max_bytes: of all entries together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._by_mark: dict[int, _Kept[Entry]] = {}
        self._recent: OrderedDict[_Kept[Entry], None] = OrderedDict()
        self._bytes = self._hits = self._misses = self._reused = 0

    def find(self, data: bytes | memoryview) -> tuple[Entry | None, tuple[int, ...]]:
        """An entry that seems to begin like `data`, and the marks by which to keep `data`."""
        marks = tuple(_marks(data))
        with self._lock:
            for mark in reversed(marks):
                kept = self._by_mark.get(mark)
                if kept is not None:
                    self._recent.move_to_end(kept)
                    return kept.value, marks
        return None, marks

    def count(self, reused: int) -> None:
        """Count a lookup, by how many bytes were really reused."""
        with self._lock:
            if reused:
                self._hits += 1
                self._reused += reused
            else:
                self._misses += 1

    def keep(self, value: Entry, marks: tuple[int, ...], *, length: int, size: int) -> None:
        """Keep an entry.

        Args:
            value: the entry.
            marks: what `find` gave for a string that begins like the entry's.
            length: bytes of the entry's own string.
            size: bytes that the entry takes.
        """
        size += _OVERHEAD
        marks = marks[: bisect_right(_distances(), length)]
        if not marks or size > self._max_bytes:
            return
        kept = _Kept(value, marks, size)
        with self._lock:
            hidden = {old for mark in marks if (old := self._by_mark.get(mark)) is not None}
            self._by_mark.update(dict.fromkeys(marks, kept))
            self._recent[kept] = None
            self._bytes += size
            # An entry that no mark leads to is wholly in the new one, or as good as.
            for old in hidden:
                if not any(self._by_mark.get(mark) is old for mark in old.marks):
                    self._drop(old)
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._recent)))

    def clear(self) -> None:
        """Forget all entries; the counters go on."""
        with self._lock:
            self._by_mark.clear()
            self._recent.clear()
            self._bytes = 0

    def stats(self) -> ReuseStats:
        """The counters."""
        with self._lock:
            return ReuseStats(
                self._hits, self._misses, self._reused, len(self._recent), self._bytes
            )

    def _drop(self, kept: _Kept[Entry]) -> None:
        del self._recent[kept]
        self._bytes -= kept.size
        for mark in kept.marks:
            if self._by_mark.get(mark) is kept:
                del self._by_mark[mark]


@cache
def _distances() -> tuple[int, ...]:
    stops = [_FIRST]
    while stops[-1] < 1 << 40:
        step = max(_FIRST, stops[-1] // _GROWTH // _FIRST * _FIRST)
        stops.append(stops[-1] + step)
    return tuple(stops)


def _marks(data: bytes | memoryview) -> Iterator[int]:
    view = memoryview(data)
    size = len(view)
    start = mark = 0
    for stop in _distances():
        if stop > size:
            return
        mark = xxhash.xxh3_64_intdigest(view[start:stop], mark)
        yield mark
        start = stop
