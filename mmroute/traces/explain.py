"""Why one request does not find the blocks of another one in a worker's cache.

A cause is not guessed from what differs. Each part in which the second request differs is put
back as it was in the first one, and the part that lets the two share more blocks is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from mmroute.errors import InexactError
from mmroute.geometry import TokenIds
from mmroute.hashing import BlockHashes
from mmroute.request import Request
from mmroute.routing import Routing
from mmroute.traces.changes import Cause, Change, changes
from mmroute.traces.requests import comparable_hashes

__all__ = ["Explanation", "Side", "explain", "shared_blocks"]

_CONTEXT: Final = 12  # tokens before and behind the first difference
_OTHER_ENGINE: Final = (
    "With one engine's settings both requests share more blocks: model string, seed, algorithm or "
    "another setting of the two engines differs."
)
_MOST_CHANGES: Final = 64  # that are tried; each costs an answer

AnswerOf: TypeAlias = Callable[[Request], Routing]


@dataclass(frozen=True, slots=True)
class Side:
    """One of two requests, around the first token that differs.

    Attributes:
        num_tokens: of the whole prompt.
        num_blocks: full blocks of the prompt.
        before: the text of the last tokens that are the same in both.
        after: the text of the tokens that follow.
    """

    num_tokens: int
    num_blocks: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What two requests share, and why not more.

    Attributes:
        shared_blocks: first blocks of both that have the same hash.
        lost_blocks: further blocks of the second request that the first one could have left if
            the cause were not there; 0 without a cause.
        block: the first block with another hash; None if the blocks of one begin the other's.
        token: the first token ID that differs; None if one prompt begins the other.
        cause: None if nothing keeps the two apart.
        text: the cause in words.
        first: the request that was there before.
        second: the request that misses.
    """

    shared_blocks: int
    lost_blocks: int
    block: int | None
    token: int | None
    cause: Cause | None
    text: str
    first: Side
    second: Side


def explain(
    first: Request,
    second: Request,
    answer_of: AnswerOf,
    decode: Callable[[Sequence[int]], str],
    *,
    first_answer_of: AnswerOf | None = None,
    block_size: int | None = None,
) -> Explanation:
    """Why `second` does not share more blocks with `first`.

    Args:
        first: a request whose blocks a worker has.
        second: a request that is expected to find them.
        answer_of: gives exact answers, such as `Normalizer.answer`.
        decode: gives the text of token IDs.
        first_answer_of: the same for `first`, where its engine has other settings.
        block_size: the engine's, in tokens; None for its default.

    Raises:
        InexactError: one of the two has no exact answer, or block hashes do not follow from it.
    """

    def hashed(request: Request, answer: AnswerOf) -> tuple[TokenIds, BlockHashes]:
        routing = answer(request)
        return routing.token_ids, comparable_hashes(routing, block_size)

    old_ids, old = hashed(first, first_answer_of or answer_of)
    new_ids, new = hashed(second, answer_of)
    shared = shared_blocks(old, new)
    token = _first_difference(old_ids, new_ids)
    apart = shared < min(len(old), len(new))
    change: Change | None = None
    reached = shared
    if apart and first_answer_of is not None:
        _, moved = hashed(first, answer_of)
        if shared_blocks(moved, new) > shared:
            change = Change(Cause.ENGINE_SETTING, _OTHER_ENGINE, second)
            reached = shared_blocks(moved, new)
    if apart and change is None:
        change, reached = _best_change(
            first, second, shared, old, lambda r: hashed(r, answer_of)[1]
        )
    at = min(len(old_ids), len(new_ids)) if token is None else token
    return Explanation(
        shared_blocks=shared,
        lost_blocks=min(reached, len(new)) - shared,
        block=shared if apart else None,
        token=token,
        cause=change.cause if change else None,
        text=change.text if change else "",
        first=_side(old_ids, len(old), at, decode),
        second=_side(new_ids, len(new), at, decode),
    )


def _best_change(
    first: Request,
    second: Request,
    shared: int,
    old: BlockHashes,
    hashes_of: Callable[[Request], BlockHashes],
) -> tuple[Change, int]:
    """The change behind which most blocks are shared, and how many; the outermost of equals."""
    tried: list[tuple[int, Change]] = []
    for change, _ in zip(changes(first, second), range(_MOST_CHANGES), strict=False):
        try:
            reached = shared_blocks(old, hashes_of(change.mended))
        except InexactError:  # this part cannot be put back alone
            reached = shared
        tried.append((reached, change))
    best = max(tried, key=lambda each: each[0], default=None)
    if best is not None and (best[0] > shared or len(tried) == 1):
        return best[1], best[0]
    listed = " ".join(change.text for _, change in tried) or "No part of the requests differs."
    return Change(Cause.SEVERAL, listed, first), len(old)


def shared_blocks(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    """How many first blocks have the same hashes."""
    for count, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return count
    return min(len(first), len(second))


def _first_difference(first: TokenIds, second: TokenIds) -> int | None:
    length = min(len(first), len(second))
    differ = np.flatnonzero(first[:length] != second[:length])
    return int(differ[0]) if len(differ) else None


def _side(ids: TokenIds, num_blocks: int, at: int, decode: Callable[[Sequence[int]], str]) -> Side:
    before = ids[max(0, at - _CONTEXT) : at].tolist()
    after = ids[at : at + _CONTEXT].tolist()
    return Side(len(ids), num_blocks, decode(before), decode(after))
