"""A cache of whole texts and their token IDs, for an encoder that encodes a chat text by text."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Final

from mmroute.reuse.prefix_cache import RecentCache

_MIN_CHARS: Final = 64  # shorter texts are encoded about as fast as they are found
_OVERHEAD: Final = 256  # the bytes that an entry takes beside its text and its token IDs


class KnownTexts(RecentCache[tuple[str, bool, bool], "array[int]"]):
    """Encodes as another encoder does, and each text once while the cache has it."""

    def __init__(self, encode: Callable[[str, bool, bool], list[int]], max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._encode = encode

    def __call__(self, s: str, bos: bool, eos: bool) -> list[int]:
        """The token IDs of a text, in a list of the caller's own."""
        if len(s) < _MIN_CHARS:
            return self._encode(s, bos, eos)
        key = (s, bos, eos)
        with self._lock:
            known = self._recent.get(key)
            if known is not None:
                self._recent.move_to_end(key)
                self._hits += 1
                self._reused += len(s)
                return known.tolist()
            self._misses += 1
        ids = self._encode(s, bos, eos)
        self._put(key, array("I", ids))
        return ids

    def _put(self, key: tuple[str, bool, bool], ids: array[int]) -> None:
        with self._lock:
            if key not in self._recent:
                self._bytes += _size(key, ids)
            self._recent[key] = ids
            while self._bytes > self._max_bytes:
                self._bytes -= _size(*self._recent.popitem(last=False))


def _size(key: tuple[str, bool, bool], ids: array[int]) -> int:
    return sys.getsizeof(key[0]) + ids.itemsize * len(ids) + _OVERHEAD
