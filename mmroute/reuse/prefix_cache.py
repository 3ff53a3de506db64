"""A prefix cache: it finds, among the texts it holds, one that begins like a new text.

A text is indexed by hashes of its beginnings: of the first 1024 characters, the first 2048, the
first 3072, and so on at distances that grow with the length. Each hash continues the one before.
A lookup takes the longest beginning of the new text that is known. A hash only finds a candidate:
the caller compares what the entry holds, so a collision costs time and changes no answer.

Example, with a first beginning of 4 characters instead of 1024:

    put("abcdefgh", entry 1)    hashes of "abcd" and "abcdefgh" lead to entry 1
    put("abcdXYZW", entry 2)    "abcd" leads to entry 2 now, "abcdXYZW" as well
    find("abcdefghijkl")        entry 1: "abcdefgh" is the longest known beginning
    find("abcdQQQQ")            entry 2: only "abcd" is known
    entry 2 is evicted          "abcd" leads nowhere, until the next text that begins so is put
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

import xxhash

from mmroute.reuse.fast_paths import ReuseStats

_FIRST: Final = 1024
_GROWTH: Final = 2  # the next beginning is longer by half of this one
_MAX_SEED: Final = (1 << 64) - 1
_OVERHEAD: Final = 512  # bytes of an entry and its hashes, beside what it holds

PrefixHashes: TypeAlias = tuple[int, ...]
"""The hashes of a text's beginnings, from the shortest to the longest."""

Entry = TypeVar("Entry")
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True, eq=False)
class _Slot(Generic[Entry]):
    """An entry as the cache holds it.

    Attributes:
        value: the caller's entry.
        text: what it was put for; None if that was bytes.
        hashes: of the beginnings of that.
        size: bytes that are counted for it.
        leading: the number of hashes that lead to it. A newer entry takes over those they share.
    """

    value: Entry
    text: str | None
    hashes: PrefixHashes
    size: int
    leading: int


class RecentCache(Generic[Key, Value]):
    """What caches have in common that drop what was used longest ago: a size, a lock and counters.

    Args:
        max_bytes: of all entries together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._recent: OrderedDict[Key, Value] = OrderedDict()
        self._bytes = self._hits = self._misses = self._reused = 0
        self._lock = threading.Lock()
        _CACHES.add(self)

    def stats(self) -> ReuseStats:
        """The counters."""
        with self._lock:
            return ReuseStats(
                self._hits, self._misses, self._reused, len(self._recent), self._bytes
            )

    def renew_lock(self) -> None:
        """Make a lock that no thread holds. For a forked process, which has no other thread."""
        self._lock = threading.Lock()


_CACHES: Final[weakref.WeakSet[RecentCache[Any, Any]]] = weakref.WeakSet()


def _renew_locks() -> None:
    for each in _CACHES:
        each.renew_lock()


if hasattr(os, "register_at_fork"):
    # A thread that held a lock when its process was forked is not in the child to release it.
    os.register_at_fork(after_in_child=_renew_locks)


class PrefixCache(RecentCache[_Slot[Entry], None], Generic[Entry]):
    """A bounded cache; the least recently used entries go first. Safe to share between threads.

    Args:
        max_bytes: of all entries together.

    >>> cache = PrefixCache(1 << 20)
    >>> _, hashes = cache.find("a" * 3000)
    >>> cache.put("first", hashes, "a" * 3000, size=3000)
    >>> cache.find("a" * 2500 + "b")[0], cache.find("b" * 2500)[0]
    ('first', None)
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._by_hash: dict[int, _Slot[Entry]] = {}

    def find(self, data: str | memoryview, *, salt: int = 0) -> tuple[Entry | None, PrefixHashes]:
        """The entry that shares the longest known beginning, and the hashes to `put` data with.

        Args:
            data: text, or bytes.
            salt: tells apart what else an entry depends on.

        Returns:
            The entry, None if no beginning is known; the hashes, empty if the data is too short.
        """
        hashes = tuple(_prefix_hashes(data, salt, until=1))
        if not hashes:
            return None, ()
        with self._lock:
            latest = self._by_hash.get(hashes[0])
        if latest is not None and latest.text is not None and isinstance(data, str):
            ends = _lengths()[: len(latest.hashes)]
            hashes = latest.hashes[: num_shared(ends, latest.text, data)]
        hashes += tuple(_prefix_hashes(data, salt, known=hashes))
        with self._lock:
            for prefix_hash in reversed(hashes):
                slot = self._by_hash.get(prefix_hash)
                if slot is not None:
                    self._recent.move_to_end(slot)
                    return slot.value, hashes
        return None, hashes

    def count(self, reused: int) -> None:
        """Count a lookup: a hit if anything of the entry was reused.

        Args:
            reused: characters or bytes.
        """
        with self._lock:
            if reused:
                self._hits += 1
                self._reused += reused
            else:
                self._misses += 1

    def put(
        self, value: Entry, hashes: PrefixHashes, data: str | bytes | memoryview, *, size: int
    ) -> None:
        """Add an entry. It replaces those whose every hash it shares.

        Args:
            value: the entry.
            hashes: what `find` gave for `data`.
            data: what the entry is for.
            size: bytes that the entry takes, `data` included if it is text.
        """
        size += _OVERHEAD
        if not hashes or size > self._max_bytes:
            return
        slot = _Slot(value, data if isinstance(data, str) else None, hashes, size, len(hashes))
        with self._lock:
            for prefix_hash in hashes:
                old = self._by_hash.get(prefix_hash)
                if old is not None and old is not slot:
                    old.leading -= 1
                    if not old.leading:  # its text is a beginning of the new one
                        self._drop(old)
                self._by_hash[prefix_hash] = slot
            self._recent[slot] = None
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._evict()

    def _evict(self) -> None:
        """Drop the least recently used entry, and the hashes that lead to it."""
        oldest = next(iter(self._recent))
        self._drop(oldest)
        for prefix_hash in oldest.hashes:
            if self._by_hash.get(prefix_hash) is oldest:
                del self._by_hash[prefix_hash]

    def _drop(self, slot: _Slot[Entry]) -> None:
        del self._recent[slot]
        self._bytes -= slot.size


@cache
def _lengths() -> tuple[int, ...]:
    """The lengths of the beginnings that are hashed, in characters or bytes."""
    lengths = [_FIRST]
    while lengths[-1] < 1 << 40:
        step = max(_FIRST, lengths[-1] // _GROWTH // _FIRST * _FIRST)
        lengths.append(lengths[-1] + step)
    return tuple(lengths)


@overload
def num_shared(ends: Sequence[int], known: str, data: str) -> int: ...
@overload
def num_shared(ends: Sequence[int], known: memoryview, data: bytes, offset: int) -> int: ...
def num_shared(ends: Sequence[int], known: Any, data: Any, offset: int = 0) -> int:
    """How many of the beginnings of a known text another text has as well.

    A conversation goes on, or has another end: comparing texts is cheaper than hashing them.

    Args:
        ends: of the beginnings of `known`, from the shortest to the longest.
        known: text, or a view of bytes.
        data: text, or bytes.
        offset: where that begins in `data`.

    >>> num_shared((4, 8, 12), "abcdefghijkl", "abcdefghXYZW")
    2
    """
    count = len(ends)
    if data.startswith(known, offset):
        return count
    low = done = 0
    while low < count:
        middle = (low + count + 1) // 2
        end = ends[middle - 1]
        if data.startswith(known[done:end], offset + done):
            low, done = middle, end
        else:
            count = middle - 1
    return low


def _prefix_hashes(
    data: str | memoryview, salt: int, *, known: PrefixHashes = (), until: int | None = None
) -> Iterator[int]:
    """The hashes that follow the `known` ones, up to the hash number `until`."""
    lengths = _lengths()
    seed, start = (known[-1], lengths[len(known) - 1]) if known else (salt & _MAX_SEED, 0)
    for stop in lengths[len(known) : until]:
        if stop > len(data):
            return
        part = data[start:stop]
        seed = xxhash.xxh3_64_intdigest(part.encode() if isinstance(part, str) else part, seed)
        yield seed
        start = stop
