"""Why one request does not find the blocks of another one in a worker's cache.

A cause is not guessed from what differs. Each part in which the second request differs is put
back as it was in the first one, and the part that lets the two share more blocks is the cause.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.geometry import TokenIds
from mmroute.hashing import BlockHashes
from mmroute.pages.alignment import Alignment, Ranges, aligned, first_difference
from mmroute.requests.request import Request
from mmroute.tokenizers import Tokenizer
from mmroute.traces.changes import Cause, Change, changes
from mmroute.traces.requests import comparable_hashes, num_same

if TYPE_CHECKING:
    import numpy.typing as npt

_CONTEXT: Final = 12  # tokens before and behind the first difference
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
        lost_tokens: tokens of these blocks behind the part that differs: what is the same in both
            and not shared.
        block: the first block with another hash; None if the blocks of one begin the other's.
        token: the first token ID that differs; None if one prompt begins the other.
        cause: None if nothing keeps the two apart.
        text: the cause in words, without anything of the prompts.
        was: the part that differs, of the first request, shortened; empty if that says nothing.
        now: the same of the second request.
        first: the request that was there before.
        second: the request that misses.
        tokens: of both, around the first one that differs.
    """

    shared_blocks: int
    lost_blocks: int
    lost_tokens: int
    block: int | None
    token: int | None
    cause: Cause | None
    text: str
    was: str
    now: str
    first: Side
    second: Side
    tokens: Alignment


@dataclass(frozen=True, slots=True)
class _Answer:
    routing: Routing
    hashes: BlockHashes

    @property
    def ids(self) -> TokenIds:
        return self.routing.token_ids


_Ask: TypeAlias = Callable[[Request], _Answer]


def explain(
    first: Request,
    second: Request,
    answer_of: AnswerOf,
    tokenizer: Tokenizer,
    *,
    first_answer_of: AnswerOf | None = None,
    block_size: int | None = None,
) -> Explanation:
    """Why `second` does not share more blocks with `first`.

    Args:
        first: a request whose blocks a worker has.
        second: a request that is expected to find them.
        answer_of: gives exact answers, such as `Normalizer.answer`.
        tokenizer: of the model.
        first_answer_of: the same for `first`, where its engine has other settings.
        block_size: the engine's, in tokens; None for its default.

    Raises:
        InexactError: one of the two has no exact answer, or block hashes do not follow from it.
    """

    def ask(request: Request, answer: AnswerOf = answer_of) -> _Answer:
        routing = answer(request)
        return _Answer(routing, comparable_hashes(routing, block_size))

    old, new = ask(first, first_answer_of or answer_of), ask(second)
    shared = num_same(old.hashes, new.hashes)
    at = first_difference(old.ids, new.ids)
    apart = shared < min(len(old.hashes), len(new.hashes))
    change: Change | None = None
    reached = lost_tokens = 0
    if apart and first_answer_of is not None:
        alike = ask(first)
        reached = num_same(alike.hashes, new.hashes)
        if reached > shared:
            change = _engine_change(old, alike, second)
            lost_tokens = (reached - shared) * new.hashes.block_size
    if apart and change is None:
        change, reached, mended = _best_change(first, second, shared, old.hashes, ask)
        lost_tokens = _lost_tokens(change, new, mended, shared, reached)
    return Explanation(
        shared_blocks=shared,
        lost_blocks=min(reached, len(new.hashes)) - shared if change else 0,
        lost_tokens=lost_tokens,
        block=shared if apart else None,
        token=at if at < min(len(old.ids), len(new.ids)) else None,
        cause=change.cause if change else None,
        text=change.text if change else "",
        was=change.was if change else "",
        now=change.now if change else "",
        first=_side(old, at, tokenizer),
        second=_side(new, at, tokenizer),
        tokens=aligned(old.ids, _ranges(old), new.ids, _ranges(new), tokenizer),
    )


def _engine_change(old: _Answer, alike: _Answer, second: Request) -> Change:
    """What differs between the engines of two answers to one request."""
    was, now = _hash_settings(old), _hash_settings(alike)
    differ = [name for name in was if was[name] != now.get(name)]
    text = f"Another setting of the two engines than {', '.join(was)} differs."
    if differ:
        text = f"The two engines differ in {', '.join(differ)}."
    old_ones = ", ".join(f"{name} {was[name]}" for name in differ)
    new_ones = ", ".join(f"{name} {now.get(name)}" for name in differ)
    return Change(Cause.ENGINE_SETTING, text, second, old_ones, new_ones)


def _hash_settings(answer: _Answer) -> dict[str, str]:
    """The engine's settings that enter the block hashes of a request."""
    known = answer.routing.hashing.settings
    settings = {
        "block size": str(answer.hashes.block_size),
        "hash algorithm": str(answer.hashes.algorithm),
        "PYTHONHASHSEED": "not set" if known.seed is None else known.seed,
    }
    if answer.routing.covers_model_id:
        settings["model string"] = known.model_id
    return settings


def _best_change(
    first: Request, second: Request, shared: int, old: BlockHashes, ask: _Ask
) -> tuple[Change, int, _Answer]:
    """The change behind which most blocks are shared, how many, and the answer without it.

    The outermost of equals wins.
    """
    tried: list[tuple[int, Change, _Answer]] = []
    listed: list[str] = []
    for change, _ in zip(changes(first, second), range(_MOST_CHANGES), strict=False):
        listed.append(change.text)
        try:
            mended = ask(change.mended)
        except InexactError:  # this part cannot be put back alone
            continue
        tried.append((num_same(old, mended.hashes), change, mended))
    best = max(tried, key=lambda each: each[0], default=None)
    if best is not None and (best[0] > shared or len(listed) == 1):
        return best[1], best[0], best[2]
    text = " ".join(listed) or "No part of the requests differs."
    return Change(Cause.SEVERAL, text, first), len(old), ask(first)


def _lost_tokens(change: Change, new: _Answer, mended: _Answer, shared: int, reached: int) -> int:
    """The tokens of the blocks between `shared` and `reached` behind the part that was mended."""
    block_size = new.hashes.block_size
    start, end = shared * block_size, reached * block_size
    # Behind a generation prompt is the rest of a longer conversation.
    if change.cause is not Cause.GENERATION_PROMPT:
        sides = [
            each.ids if change.same_item else _identified_ids(each.routing)
            for each in (new, mended)
        ]
        at = first_difference(*sides)
        room = min(map(len, sides)) - at
        if room:
            behind = first_difference(*(side[len(side) - room :][::-1] for side in sides))
            start = max(start, len(mended.ids) - behind)
    return max(0, end - start)


def _identified_ids(routing: Routing) -> npt.NDArray[np.int64]:
    """Token IDs, and below zero where an item stands that is another one."""
    ids = routing.token_ids.astype(np.int64)
    for placeholder, identity in routing.identified():
        end = placeholder.offset + placeholder.length
        ids[placeholder.offset : end] = -1 - zlib.crc32(identity.value.encode())
    return ids


def _ranges(answer: _Answer) -> Ranges:
    return [(each.offset, each.length) for each in answer.routing.placeholders]


def _side(answer: _Answer, at: int, tokenizer: Tokenizer) -> Side:
    ids = answer.ids
    before, after = ids[max(0, at - _CONTEXT) : at], ids[at : at + _CONTEXT]
    texts = (tokenizer.decode(part.tolist()) for part in (before, after))
    return Side(len(ids), len(answer.hashes), *texts)
