"""A prefix cache: it finds, among the texts it holds, the one with the longest common prefix.

A text is indexed by hashes of some of its prefixes: of the first 1024 characters, the first 2048,
the first 3072, and so on at distances that grow with the length. Each hash continues the one
before. A lookup finds the entry for the longest prefix that is in the cache. A hash finds only a
candidate: the caller compares the texts, so a collision costs time and changes no answer.

Example, with a first prefix of 4 characters instead of 1024:

    put("abcdefgh", entry 1)    the hashes of "abcd" and "abcdefgh" lead to entry 1
    put("abcdXYZW", entry 2)    the hashes of "abcd" and "abcdXYZW" lead to entry 2
    find("abcdefghijkl")        entry 1: the longest known prefix is "abcdefgh"
    find("abcdQQQQ")            entry 2: the longest known prefix is "abcd"
    entry 2 is evicted          "abcd" leads nowhere until the next text with this prefix is put
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

import xxhash

from mmroute.reuse.fast_paths import CacheStats

_FIRST: Final = 1024
_GROWTH: Final = 2  # the next prefix is longer by half of this one
_MAX_SEED: Final = (1 << 64) - 1
_OVERHEAD: Final = 512  # the bytes that an entry and its hashes take beside the caller's value

PrefixHashes: TypeAlias = tuple[int, ...]
"""The hashes of a text's prefixes, from the shortest to the longest."""

Entry = TypeVar("Entry")
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True, eq=False)
class _Slot(Generic[Entry]):
    """An entry as the cache holds it."""

    value: Entry  # the caller's value
    text: str | None  # the text of the entry; None if it was put for bytes
    hashes: PrefixHashes  # the hashes of the prefixes of that text, or of these bytes
    size: int  # the size that is counted for the entry, in bytes
    # The number of hashes that lead to this entry. A newer entry takes over the hashes that both
    # have.
    leading: int


class RecentCache(Generic[Key, Value]):
    """The base of caches that evict the least recently used entry: a size, a lock and counters."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._recent: OrderedDict[Key, Value] = OrderedDict()
        self._bytes = self._hits = self._misses = self._reused = 0
        self._lock = threading.Lock()
        _CACHES.add(self)

    def stats(self) -> CacheStats:
        """The counters."""
        with self._lock:
            return CacheStats(
                self._hits, self._misses, self._reused, len(self._recent), self._bytes
            )

    def count(self, reused: int) -> None:
        """Count a lookup, as a hit if a part of the entry was reused."""
        with self._lock:
            if reused:
                self._hits += 1
                self._reused += reused
            else:
                self._misses += 1

    def renew_lock(self) -> None:
        """Replace the lock by one that no thread holds, for a forked process."""
        self._lock = threading.Lock()


_CACHES: Final[weakref.WeakSet[RecentCache[Any, Any]]] = weakref.WeakSet()


def _renew_locks() -> None:
    for each in _CACHES:
        each.renew_lock()


if hasattr(os, "register_at_fork"):
    # A thread that held a lock when its process was forked does not exist in the child.
    os.register_at_fork(after_in_child=_renew_locks)


class PrefixCache(RecentCache[_Slot[Entry], None], Generic[Entry]):
    """A bounded cache; the least recently used entries go first. Safe to share between threads.

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
        """Look up the entry with the longest prefix that `data` has, too."""
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

    def put(
        self, value: Entry, hashes: PrefixHashes, data: str | bytes | memoryview, *, size: int
    ) -> None:
        """Add an entry. It replaces entries whose hashes it has all."""
        size += _OVERHEAD
        if not hashes or size > self._max_bytes:
            return
        slot = _Slot(value, data if isinstance(data, str) else None, hashes, size, len(hashes))
        with self._lock:
            for prefix_hash in hashes:
                old = self._by_hash.get(prefix_hash)
                if old is not None and old is not slot:
                    old.leading -= 1
                    if not old.leading:  # its text is a prefix of the new one
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
    """The lengths of the prefixes that are hashed, in characters or bytes."""
    lengths = [_FIRST]
    while lengths[-1] < 1 << 40:
        step = max(_FIRST, lengths[-1] // _GROWTH // _FIRST * _FIRST)
        lengths.append(lengths[-1] + step)
    return tuple(lengths)


def num_shared(ends: Sequence[int], known: str, text: str) -> int:
    """The number of prefixes of a known text that another text has as well.

    Most texts share all prefixes or most of them, and comparing is faster than hashing.

    >>> num_shared((4, 8, 12), "abcdefghijkl", "abcdefghXYZW")
    2
    """
    count = len(ends)
    if text.startswith(known):
        return count
    low = done = 0
    while low < count:
        middle = (low + count + 1) // 2
        end = ends[middle - 1]
        if text.startswith(known[done:end], done):
            low, done = middle, end
        else:
            count = middle - 1
    return low


def _prefix_hashes(
    data: str | memoryview, salt: int, *, known: PrefixHashes = (), until: int | None = None
) -> Iterator[int]:
    """The hashes of prefixes that follow the `known` ones, up to the hash number `until`."""
    lengths = _lengths()
    seed, start = (known[-1], lengths[len(known) - 1]) if known else (salt & _MAX_SEED, 0)
    for stop in lengths[len(known) : until]:
        if stop > len(data):
            return
        part = data[start:stop]
        seed = xxhash.xxh3_64_intdigest(part.encode() if isinstance(part, str) else part, seed)
        yield seed
        start = stop
