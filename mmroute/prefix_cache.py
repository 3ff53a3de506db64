"""Finds, among the strings it keeps, one that begins like a new one.

A string is known by the hashes of its first 1024 characters or bytes, of its first 2048, and so
on at growing distances, each continuing the one before. The longest of them that is known leads
to an entry; the caller compares what the entry really holds, so that a hash only ever costs or
saves time.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar

import xxhash

from mmroute.fast_paths import ReuseStats

__all__ = ["PrefixIndex"]

_FIRST: Final = 1024
_GROWTH: Final = 2  # a distance is half of what lies before it
_MOST: Final = (1 << 64) - 1
_OVERHEAD: Final = 512  # bytes of an entry and its marks, beside what it holds

Entry = TypeVar("Entry")


@dataclass(slots=True, eq=False)
class _Kept(Generic[Entry]):
    """An entry, and how many of its marks lead to it: a newer entry takes those it shares."""

    value: Entry
    text: str | None
    marks: tuple[int, ...]
    size: int
    leading: int


class PrefixIndex(Generic[Entry]):
    """A bounded index; the entries used longest ago go first. Safe to share between threads.

    Args:
        max_bytes: of all entries together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        _INDEXES.add(self)
        self._by_mark: dict[int, _Kept[Entry]] = {}
        self._recent: OrderedDict[_Kept[Entry], None] = OrderedDict()
        self._bytes = self._hits = self._misses = self._reused = 0

    def find(
        self, data: str | memoryview, *, salt: int = 0
    ) -> tuple[Entry | None, tuple[int, ...]]:
        """An entry that seems to begin like `data`, and the marks by which to keep `data`.

        Args:
            data: text, or bytes.
            salt: tells apart what else an entry depends on.
        """
        marks = tuple(_marks(data, salt, until=1))
        if not marks:
            return None, ()
        with self._lock:
            latest = self._by_mark.get(marks[0])
        if latest is not None and latest.text is not None and isinstance(data, str):
            marks = latest.marks[: _holding(latest.marks, latest.text, data)]
        marks += tuple(_marks(data, salt, known=marks))
        with self._lock:
            for mark in reversed(marks):
                kept = self._by_mark.get(mark)
                if kept is not None:
                    self._recent.move_to_end(kept)
                    return kept.value, marks
        return None, marks

    def count(self, reused: int) -> None:
        """Count a lookup, by how much was really reused."""
        with self._lock:
            if reused:
                self._hits += 1
                self._reused += reused
            else:
                self._misses += 1

    def keep(
        self, value: Entry, marks: tuple[int, ...], data: str | memoryview, *, size: int
    ) -> None:
        """Keep an entry.

        Args:
            value: the entry.
            marks: what `find` gave for `data`.
            data: the entry's own.
            size: bytes that the entry takes, `data` included if it is text.
        """
        size += _OVERHEAD
        if not marks or size > self._max_bytes:
            return
        kept = _Kept(value, data if isinstance(data, str) else None, marks, size, len(marks))
        with self._lock:
            for mark in marks:
                old = self._by_mark.get(mark)
                if old is not None and old is not kept:
                    old.leading -= 1
                    if not old.leading:  # all of it is in the new one, or as good as
                        self._forget(old)
                self._by_mark[mark] = kept
            self._recent[kept] = None
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._evict()

    def stats(self) -> ReuseStats:
        """The counters."""
        with self._lock:
            return ReuseStats(
                self._hits, self._misses, self._reused, len(self._recent), self._bytes
            )

    def _evict(self) -> None:
        """Forget what was used longest ago; marks it took from others lead to them again."""
        oldest = next(iter(self._recent))
        self._forget(oldest)
        heir: _Kept[Entry] | None = oldest
        for place, mark in enumerate(oldest.marks):
            if self._by_mark.get(mark) is not oldest:
                continue
            if heir is not None:  # each mark continues the one before: without that, nobody has it
                others = (
                    k for k in reversed(self._recent) if k.marks[place : place + 1] == (mark,)
                )
                heir = next(others, None)
            if heir is None:
                del self._by_mark[mark]
            else:
                self._by_mark[mark] = heir
                heir.leading += 1

    def _forget(self, kept: _Kept[Entry]) -> None:
        del self._recent[kept]
        self._bytes -= kept.size


_INDEXES: Final[weakref.WeakSet[PrefixIndex[Any]]] = weakref.WeakSet()


def _renew_locks() -> None:
    for index in _INDEXES:
        index._lock = threading.Lock()  # noqa: SLF001 - one module


if hasattr(os, "register_at_fork"):
    # A thread that held a lock when its process was forked is not in the child to release it.
    os.register_at_fork(after_in_child=_renew_locks)


@cache
def _distances() -> tuple[int, ...]:
    stops = [_FIRST]
    while stops[-1] < 1 << 40:
        step = max(_FIRST, stops[-1] // _GROWTH // _FIRST * _FIRST)
        stops.append(stops[-1] + step)
    return tuple(stops)


def _holding(marks: tuple[int, ...], text: str, data: str) -> int:
    """How many marks of a text another one has too, of which the first is the same.

    A conversation goes on, or has another end: comparing texts is cheaper than hashing them.
    """
    if data.startswith(text):
        return len(marks)
    stops = _distances()
    low, high = 1, len(marks)
    while low < high:
        middle = (low + high + 1) // 2
        if data.startswith(text[stops[low - 1] : stops[middle - 1]], stops[low - 1]):
            low = middle
        else:
            high = middle - 1
    return low


def _marks(
    data: str | memoryview,
    salt: int,
    *,
    known: tuple[int, ...] = (),
    until: int | None = None,
) -> Iterator[int]:
    """The marks behind the first, `known` ones."""
    stops = _distances()
    mark, start = (known[-1], stops[len(known) - 1]) if known else (salt & _MOST, 0)
    for stop in stops[len(known) : until]:
        if stop > len(data):
            return
        piece = data[start:stop]
        mark = xxhash.xxh3_64_intdigest(piece.encode() if isinstance(piece, str) else piece, mark)
        yield mark
        start = stop
