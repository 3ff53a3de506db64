"""Explains why a request does not find the blocks of another one in a worker's cache.

The cause is found by trial. Each part in which the second request differs is replaced by that of
the first. The part whose replacement lets the two share most blocks is the cause.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.hashing import BlockHashes
from mmroute.lab.parity.differences import first_difference, num_same
from mmroute.lab.traces.changes import Cause, Change, changes
from mmroute.lab.traces.requests import AnswerOf, comparable_hashes
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_NOTHING: Final = (
    "Nothing was compared: a request has no full block. Give longer requests, or the engine's "
    "block size."
)
_CONTEXT: Final = 12  # tokens before and after the first difference
_MAX_CHANGES: Final = 64  # changes that are tried; each costs an answer


@dataclass(frozen=True, slots=True)
class Side:
    """One of two requests, around the first token that differs.

    Attributes:
        num_tokens: the number of tokens in the prompt.
        num_blocks: the number of full blocks in the prompt.
        before: the text of the last tokens before the difference.
        after: the text of the first tokens after it begins.
    """

    num_tokens: int
    num_blocks: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The blocks that two requests share, and the reason why they share no more.

    Attributes:
        shared_blocks: the number of first blocks with the same hash in both.
        lost_blocks: the number of further blocks that the two would share without the cause; 0 if
            there is no cause.
        block: the index of the first block with another hash; None if the blocks of one request
            are a prefix of the other's.
        token: the index of the first token ID that differs; None if one prompt is a prefix of the
            other.
        cause: the cause; None if no part keeps the two apart.
        text: the cause in words, without text of the prompts; that nothing was compared, if one of
            the requests has no full block.
        was: the differing part of the first request, shortened; empty if it would not help.
        now: the differing part of the second request, shortened; empty if it would not help.
        first: the request whose blocks a worker has.
        second: the request that does not find them.
    """

    shared_blocks: int
    lost_blocks: int
    block: int | None
    token: int | None
    cause: Cause | None
    text: str
    was: str
    now: str
    first: Side
    second: Side


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
    """Explain why `second` does not share more blocks with `first`.

    Args:
        first: a request whose blocks a worker has.
        second: a request that is expected to find them.
        answer_of: answers a request, or raises InexactError; for example `Normalizer.answer`.
        tokenizer: the model's tokenizer.
        first_answer_of: answers `first`, if its engine has other settings; None for `answer_of`.
        block_size: the number of tokens in a block of the engine; None for the engine's default.

    Raises:
        InexactError: a request has no exact answer, or its block hashes are not known.
    """

    def ask(request: Request, answer: AnswerOf = answer_of) -> _Answer:
        routing = answer(request)
        if first_answer_of is None:
            return _Answer(routing, comparable_hashes(routing, block_size))
        # Of two engines that draw their seeds at random, no block has the same hash.
        return _Answer(routing, routing.block_hashes(block_size=block_size))

    old, new = ask(first, first_answer_of or answer_of), ask(second)
    shared = num_same(old.hashes, new.hashes)
    at = first_difference(old.ids, new.ids)
    comparable = min(len(old.hashes), len(new.hashes))
    apart = shared < comparable
    change: Change | None = None
    reached = 0
    if apart and first_answer_of is not None:
        alike = ask(first)
        reached = num_same(alike.hashes, new.hashes)
        if reached > shared:
            change = _engine_change(old, alike, second)
    if apart and change is None:
        change, reached = _best_change(first, second, shared, old.hashes, ask)
    return Explanation(
        shared_blocks=shared,
        lost_blocks=min(reached, len(new.hashes)) - shared if change else 0,
        block=shared if apart else None,
        token=at if at < min(len(old.ids), len(new.ids)) else None,
        cause=change.cause if change else None,
        text=change.text if change else "" if comparable else _NOTHING,
        was=change.was if change else "",
        now=change.now if change else "",
        first=_side(old, at, tokenizer),
        second=_side(new, at, tokenizer),
    )


def _engine_change(old: _Answer, alike: _Answer, second: Request) -> Change:
    """The difference between the engines of two answers to one request."""
    was, now = _hash_settings(old), _hash_settings(alike)
    differ = [name for name in was if was[name] != now.get(name)]
    known = ", ".join(differ) or f"a setting other than {', '.join(was)}"
    text = f"The two engines differ in {known}."
    if list(old.ids) != list(alike.ids):
        text += (
            " They have other token IDs for one request: compare --chat-template, "
            "--tokenizer-mode, --mm-processor-kwargs and the files of the model."
        )
    old_ones = ", ".join(f"{name} {was[name]}" for name in differ)
    new_ones = ", ".join(f"{name} {now.get(name)}" for name in differ)
    return Change(Cause.ENGINE_SETTING, text, second, old_ones, new_ones)


def _hash_settings(answer: _Answer) -> dict[str, str]:
    """The engine's settings on which the block hashes of a request depend."""
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
) -> tuple[Change, int]:
    """The outermost change whose restoring makes them share most blocks, and how many."""
    tried: list[tuple[int, Change]] = []
    listed = list(itertools.islice(changes(first, second), _MAX_CHANGES))
    for change in listed:
        with contextlib.suppress(InexactError):  # this part cannot be restored alone
            tried.append((num_same(old, ask(change.restored).hashes), change))
    reached, best = max(tried, key=lambda each: each[0], default=(shared, None))
    if best is not None and (reached > shared or len(listed) == 1):
        return best, reached
    text = " ".join(each.text for each in listed) or "No part of the requests differs."
    return Change(Cause.SEVERAL, text, first), len(old)


def _side(answer: _Answer, at: int, tokenizer: Tokenizer) -> Side:
    ids = answer.ids
    before, after = ids[max(0, at - _CONTEXT) : at], ids[at : at + _CONTEXT]
    texts = (tokenizer.decode(part.tolist()) for part in (before, after))
    return Side(len(ids), len(answer.hashes), *texts)
