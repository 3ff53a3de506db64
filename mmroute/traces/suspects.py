"""Requests of a trace that hold what an earlier one holds, and do not find its blocks."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.traces.requests import TracedRequest, num_same

_MOST_BLOCKS: Final = 1 << 19  # of the requests that are remembered
_MOST_PIECES: Final = 1 << 21
_MOST_COMPARED: Final = 4  # earlier requests, for each one
_OF_TEXT: Final = 1 << 32  # tells the keys of texts from those of pieces


@dataclass(frozen=True, slots=True)
class Suspect:
    """Two requests that may have lost reuse.

    Attributes:
        first: line of the earlier one.
        second: line of the later one.
        stands_for: how many such pairs this one stands for, where not all are explained.
    """

    first: int
    second: int
    stands_for: float


class Suspects:
    """Finds pairs of requests that share text or items, and fewer blocks than they could.

    The earlier one has most of the later one's sentences, items and tools; of equals, the longest
    beginning of its text. Compared are those that last had some of these. About as many blocks are
    lost as belong to what both have behind their first difference.

    Args:
        block_size: tokens in a block.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._recent: OrderedDict[int, TracedRequest] = OrderedDict()
        self._num_blocks = 0
        self._last_with: dict[int, int] = {}  # by piece or beginning of a text, the line
        self._pairs = array("Q")  # of each: the first line, the second one, and the blocks

    def __len__(self) -> int:
        return len(self._pairs) // 3

    def add(self, request: TracedRequest, found: int) -> None:
        """Look at a request of which so many blocks are found in the largest cache."""
        if not request.pieces:
            return
        earlier = self._nearest(request)
        if earlier is not None:
            lost = self._shareable(earlier, request) - found
            if lost > 0:
                self._pairs.extend((earlier.line, request.line, lost))
        self._remember(request)

    def drawn(self, most: int) -> list[Suspect]:
        """All pairs, or a part of them, drawn by the blocks they may have lost."""
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
        lines = {line for line, _ in votes.most_common(_MOST_COMPARED)}
        # Short sentences are no pieces: a request may differ from the last one with its pieces.
        beginnings = (self._last_with.get(_OF_TEXT | key, 0) for key in reversed(request.text))
        lines.update(itertools.islice((line for line in beginnings if line in self._recent), 1))

        def in_common(earlier: TracedRequest) -> tuple[int, int, int]:
            keys = {piece.key for piece in earlier.pieces}
            tokens = sum(piece.tokens for piece in request.pieces if piece.key in keys)
            return tokens, num_same(earlier.text, request.text), earlier.line

        return max((self._recent[line] for line in lines), key=in_common, default=None)

    def _shareable(self, earlier: TracedRequest, request: TracedRequest) -> int:
        """About how many blocks the two could share."""
        keys = [[piece.key for piece in each.pieces] for each in (earlier, request)]
        same = num_same(*keys)
        if same == min(map(len, keys)):  # one begins as the other one ends
            return min(len(earlier.hashes), len(request.hashes))
        behind = set(keys[0][same:])
        tokens = sum(piece.tokens for piece in request.pieces[same:] if piece.key in behind)
        return num_same(earlier.hashes, request.hashes) + tokens // self._block_size

    def _remember(self, request: TracedRequest) -> None:
        self._recent[request.line] = request
        self._num_blocks += len(request.hashes)
        while self._num_blocks > _MOST_BLOCKS:
            _, oldest = self._recent.popitem(last=False)
            self._num_blocks -= len(oldest.hashes)
        for piece in request.pieces:
            self._last_with[piece.key] = request.line
        for key in request.text:
            self._last_with[_OF_TEXT | key] = request.line
        if len(self._last_with) > _MOST_PIECES:
            known = self._recent
            self._last_with = {k: line for k, line in self._last_with.items() if line in known}
