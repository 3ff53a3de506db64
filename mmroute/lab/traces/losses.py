"""The reuse that a trace loses, by its cause."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mmroute.errors import InexactError
from mmroute.lab.parity.differences import num_same
from mmroute.lab.traces.changes import Cause
from mmroute.lab.traces.explain import Explanation, explain
from mmroute.lab.traces.requests import TracedRequest, numbered_lines
from mmroute.normalizer import Normalizer
from mmroute.requests.lines import json_object, request_of

_MAX_EXPLAINED: Final = 200  # pairs, whose lines are in memory together
_MAX_COMPARED: Final = 4  # earlier requests that each request is compared with


@dataclass(frozen=True, slots=True)
class Suspect:
    """Two lines that have text or items in common, and the blocks that they may have lost."""

    lost: int
    first: int
    second: int


@dataclass(slots=True)
class Loss:
    """The reuse that the explained pairs lose by one cause."""

    cause: Cause
    tokens: int  # the number of tokens that two requests have in common and do not share
    pairs: int
    example: Suspect  # the pair that lost most
    explanation: Explanation  # the explanation of this pair


def suspects(
    requests: Iterable[TracedRequest], cached: Iterable[int], block_size: int
) -> list[Suspect]:
    """The pairs of requests that have more in common than their `cached` blocks.

    For each request it picks the earlier one with most of its sentences, items and tools. The
    candidates are the last requests that had one of them. The loss is estimated from what both have
    after their first difference.
    """
    found = []
    last_with: dict[int, TracedRequest] = {}
    for request, blocks in zip(requests, cached, strict=True):
        candidates: dict[int, TracedRequest] = {}
        votes: Counter[int] = Counter()
        for piece, tokens in zip(request.pieces, request.weights, strict=True):
            if piece in last_with:
                earlier = last_with[piece]
                candidates[earlier.line] = earlier
                votes[earlier.line] += tokens
        nearest = [candidates[line] for line, _ in votes.most_common(_MAX_COMPARED)]
        if nearest:
            first = max(nearest, key=functools.partial(_in_common, request))
            lost = _shareable(first, request, block_size) - blocks
            if lost > 0:
                found.append(Suspect(lost, first.line, request.line))
        last_with.update(dict.fromkeys(request.pieces, request))
    return found


def _in_common(request: TracedRequest, earlier: TracedRequest) -> tuple[int, int, int]:
    pieces = set(earlier.pieces)
    weighed = zip(request.pieces, request.weights, strict=True)
    tokens = sum(weight for piece, weight in weighed if piece in pieces)
    return tokens, num_same(earlier.pieces, request.pieces), earlier.line


def _shareable(earlier: TracedRequest, request: TracedRequest, block_size: int) -> int:
    """An estimate of the number of blocks that the two could share."""
    same = num_same(earlier.pieces, request.pieces)
    if same == min(len(earlier.pieces), len(request.pieces)):  # one is a prefix of the other
        return min(len(earlier.hashes), len(request.hashes))
    behind = set(earlier.pieces[same:])
    later = zip(request.pieces[same:], request.weights[same:], strict=True)
    tokens = sum(weight for piece, weight in later if piece in behind)
    return num_same(earlier.hashes, request.hashes) + tokens // block_size


def losses_by_cause(
    path: str, pairs: Iterable[Suspect], normalizer: Normalizer, block_size: int
) -> tuple[int, list[Loss]]:
    """Explain the pairs that may have lost most: their number, and the losses, largest first."""
    explained = heapq.nlargest(_MAX_EXPLAINED, pairs, key=lambda pair: pair.lost)
    wanted = {line for pair in explained for line in (pair.first, pair.second)}
    lines = {n: line for n, line in numbered_lines(path) if n in wanted} if wanted else {}
    losses: dict[Cause, Loss] = {}
    for pair in explained:
        first, second = (request_of(json_object(lines[n])) for n in (pair.first, pair.second))
        answer, tokenizer = normalizer.answer, normalizer.model.tokenizer
        try:
            found = explain(first, second, answer, tokenizer, block_size=block_size)
        except InexactError:  # for example a link that no longer works
            continue
        if found.cause is None or not found.lost_tokens:
            continue
        loss = losses.setdefault(found.cause, Loss(found.cause, 0, 0, pair, found))
        loss.tokens += found.lost_tokens
        loss.pairs += 1
        if found.lost_tokens > loss.explanation.lost_tokens:
            loss.example, loss.explanation = pair, found
    return len(explained), sorted(losses.values(), key=lambda loss: -loss.tokens)
