"""Finds requests of a trace that have much in common with an earlier one and miss its blocks."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.lab.parity.differences import num_same
from mmroute.lab.traces.requests import TracedRequest

_MAX_BLOCKS: Final = 1 << 19  # the blocks of all requests that are remembered
_MAX_PIECES: Final = 1 << 21
_MAX_COMPARED: Final = 4  # earlier requests that each request is compared with
_TEXT_KEY: Final = 1 << 32  # a bit that marks keys of texts, as against keys of pieces


@dataclass(frozen=True, slots=True)
class Suspect:
    """Two requests that may have lost reuse.

    Attributes:
        first: the line of the earlier request.
        second: the line of the later request.
        stands_for: the number of pairs that this one represents in a sample; 1 without sampling.
    """

    first: int
    second: int
    stands_for: float


class Suspects:
    """Finds pairs of requests that have text or items in common, and share too few blocks.

    For each request it picks the earlier one with most of its sentences, items and tools; of
    several, the one with the longest common prefix of text. Candidates are the last requests that
    had one of these pieces. The loss is estimated from the pieces that both have after their first
    difference.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._recent: OrderedDict[int, TracedRequest] = OrderedDict()
        self._num_blocks = 0
        self._last_with: dict[int, int] = {}  # the line that last had a piece or prefix, by key
        self._pairs = array("Q")  # for each pair both lines and the blocks that it may have lost

    def __len__(self) -> int:
        return len(self._pairs) // 3

    def add(self, request: TracedRequest, num_cached: int) -> None:
        """Examine a request."""
        if not request.pieces:
            return
        earlier = self._nearest(request)
        if earlier is not None:
            lost = self._shareable(earlier, request) - num_cached
            if lost > 0:
                self._pairs.extend((earlier.line, request.line, lost))
        self._remember(request)

    def drawn(self, most: int) -> list[Suspect]:
        """All pairs, or a sample of at most `most`, weighted by the blocks they may have lost."""
        pairs = np.frombuffer(self._pairs, dtype=np.uint64).reshape(-1, 3)
        if len(pairs) <= most:
            return [Suspect(first, second, 1) for first, second, _ in pairs.tolist()]
        reached = pairs[:, 2].cumsum()
        step = float(reached[-1]) / most
        drawn = Counter(np.searchsorted(reached, (np.arange(most) + 0.5) * step).tolist())
        return [
            Suspect(first, second, stands_for=drawn[at] * step / blocks)
            for at in drawn
            for first, second, blocks in [pairs[at].tolist()]
        ]

    def _nearest(self, request: TracedRequest) -> TracedRequest | None:
        votes: Counter[int] = Counter()
        for piece in request.pieces:
            line = self._last_with.get(piece.key, 0)
            if line in self._recent:
                votes[line] += piece.tokens
        lines = {line for line, _ in votes.most_common(_MAX_COMPARED)}
        # Short sentences are not pieces, so the request with the same pieces may differ in them.
        beginnings = (self._last_with.get(_TEXT_KEY | key, 0) for key in reversed(request.text))
        lines.update(itertools.islice((line for line in beginnings if line in self._recent), 1))

        def in_common(earlier: TracedRequest) -> tuple[int, int, int]:
            keys = {piece.key for piece in earlier.pieces}
            tokens = sum(piece.tokens for piece in request.pieces if piece.key in keys)
            return tokens, num_same(earlier.text, request.text), earlier.line

        return max((self._recent[line] for line in lines), key=in_common, default=None)

    def _shareable(self, earlier: TracedRequest, request: TracedRequest) -> int:
        """An estimate of the number of blocks that the two could share."""
        keys = [[piece.key for piece in each.pieces] for each in (earlier, request)]
        same = num_same(*keys)
        if same == min(map(len, keys)):  # one is a prefix of the other
            return min(len(earlier.hashes), len(request.hashes))
        behind = set(keys[0][same:])
        tokens = sum(piece.tokens for piece in request.pieces[same:] if piece.key in behind)
        return num_same(earlier.hashes, request.hashes) + tokens // self._block_size

    def _remember(self, request: TracedRequest) -> None:
        self._recent[request.line] = request
        self._num_blocks += len(request.hashes)
        while self._num_blocks > _MAX_BLOCKS:
            _, oldest = self._recent.popitem(last=False)
            self._num_blocks -= len(oldest.hashes)
        for piece in request.pieces:
            self._last_with[piece.key] = request.line
        for key in request.text:
            self._last_with[_TEXT_KEY | key] = request.line
        if len(self._last_with) > _MAX_PIECES:
            known = self._recent
            self._last_with = {k: line for k, line in self._last_with.items() if line in known}
