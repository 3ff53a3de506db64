"""The reuse in a trace: the hit rates of one cache that gets all requests, by its size."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

from mmroute.lab.traces.requests import TracedRequest

_MAX_BINS: Final = 120
_CAPACITIES: Final = tuple(1 << n for n in range(6, 21))  # blocks


@dataclass(slots=True)
class Bin:
    """Some consecutive requests.

    Attributes:
        timestamp: the time of the first request; None if the trace does not have it.
        requests: the number of requests.
        tokens: the number of tokens in their prompts.
        cached: the number of these tokens that were cached.
    """

    timestamp: float | None
    requests: int = 0
    tokens: int = 0
    cached: int = 0


class Timeline:
    """A trace in at most 120 bins of equally many requests."""

    def __init__(self) -> None:
        self.bins: list[Bin] = []
        self._every = 1

    def add(self, request: TracedRequest, cached: int) -> None:
        """Count a request of which `cached` tokens were cached."""
        if not self.bins or self.bins[-1].requests == self._every:
            if len(self.bins) == _MAX_BINS:
                self._join()
            self.bins.append(Bin(request.timestamp))
        last = self.bins[-1]
        last.requests += 1
        last.tokens += request.num_tokens
        last.cached += cached

    def _join(self) -> None:
        self._every *= 2
        pairs = zip(self.bins[::2], self.bins[1::2], strict=True)
        self.bins = [
            Bin(a.timestamp, a.requests + b.requests, a.tokens + b.tokens, a.cached + b.cached)
            for a, b in pairs
        ]


class ReuseCurve:
    """Hit rates of one LRU cache that gets all requests, for many sizes in one pass.

    A block is cached if the number of different blocks used since its last use is below the
    cache's size (Mattson's reuse distance). Of one request, blocks at the end are evicted before
    those at the beginning. Blocks are counted by the request that used them last, so a request
    costs a few steps for each earlier one with which it shares blocks. Blocks beyond the largest
    size are forgotten, which bounds the memory.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._last_use: dict[int, int] = {}  # by block hash, the number of a request, from 1
        self._counts = _FenwickTree()
        self._from_size = [0] * (len(_CAPACITIES) + 1)  # hits in this size and all larger ones
        self._in_size = [0] * len(_CAPACITIES)  # further hits in this size only
        self.tokens = self.blocks = self.different = 0
        self.timeline = Timeline()

    def add(self, request: TracedRequest) -> int:
        """Count a request, and return the number of its leading blocks that were used before."""
        hashes = request.hashes
        last_uses = list(map(self._last_use.get, hashes))
        cached = last_uses.index(None) if None in last_uses else len(hashes)
        taken = min(cached, request.most_cached(self._block_size))
        start = 0
        runs = [(user, len(list(run))) for user, run in groupby(last_uses) if user is not None]
        for user, length in runs:
            self._count_hits(self._counts.sum_after(user), min(length, taken - start))
            start += length
        for user, length in runs:
            self._counts.add(user, -length)
        self._counts.append(len(hashes))
        self._last_use.update(dict.fromkeys(hashes, len(self._counts)))
        if len(self._last_use) > 2 * _CAPACITIES[-1]:
            self._forget()
        self.tokens += request.num_tokens
        self.blocks += len(hashes)
        self.different += last_uses.count(None)
        self.timeline.add(request, taken * self._block_size)
        return taken

    def hit_rates(self) -> list[tuple[int, float]]:
        """The part of all tokens that is cached, by the cache's size in blocks."""
        rates = []
        for size, smaller, own in zip(
            _CAPACITIES, accumulate(self._from_size), self._in_size, strict=False
        ):
            rates.append((size, (smaller + own) * self._block_size / max(1, self.tokens)))
            if size >= self.different:
                break
        return rates

    def _count_hits(self, newer: int, length: int) -> None:
        """Count the hits of a run of blocks in caches of all sizes."""
        if length <= 0:
            return
        at = bisect_left(_CAPACITIES, newer + length)
        self._from_size[at] += length
        while at and _CAPACITIES[at - 1] > newer:
            at -= 1
            self._in_size[at] += _CAPACITIES[at] - newer

    def _forget(self) -> None:
        users = range(1, len(self._counts) + 1)
        oldest = users[
            bisect_left(users, -_CAPACITIES[-1], key=lambda user: -self._counts.sum_after(user))
        ]
        self._last_use = {b: user for b, user in self._last_use.items() if user >= oldest}


class _FenwickTree:
    """A list of counts with fast sums of all counts after one of them."""

    def __init__(self) -> None:
        self._tree = array("q", [0])
        self._total = 0

    def __len__(self) -> int:
        return len(self._tree) - 1

    def append(self, count: int) -> None:
        at, width = len(self._tree), 1
        self._total += count
        while width < at & -at:
            count += self._tree[at - width]
            width <<= 1
        self._tree.append(count)

    def add(self, at: int, count: int) -> None:
        self._total += count
        while at < len(self._tree):
            self._tree[at] += count
            at += at & -at

    def sum_after(self, at: int) -> int:
        total = self._total
        while at:
            total -= self._tree[at]
            at &= at - 1
        return total
