"""Explains why a request does not find the blocks of another one in a worker's cache.

The cause is found by trial. Each part in which the second request differs is replaced by that of
the first. The part whose replacement lets the two share most blocks is the cause.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.hashing import BlockHashes
from mmroute.lab.parity.differences import first_difference, num_same
from mmroute.lab.traces.changes import Cause, Change, changes
from mmroute.lab.traces.requests import comparable_hashes
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt

_NOTHING: Final = (
    "Nothing was compared: a request has no full block. Give longer requests, or the engine's "
    "block size."
)
_CONTEXT: Final = 12  # tokens before and after the first difference
_MAX_CHANGES: Final = 64  # changes that are tried; each costs an answer

AnswerOf: TypeAlias = Callable[[Request], Routing]


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
        lost_tokens: the number of tokens in these blocks after the part that differs. They are
            the same in both requests, and not shared. 0 if that part is another text altogether,
            because nobody can win them back.
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
    lost_tokens: int
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
    reached = lost_tokens = 0
    if apart and first_answer_of is not None:
        alike = ask(first)
        reached = num_same(alike.hashes, new.hashes)
        if reached > shared:
            change = _engine_change(old, alike, second)
            lost_tokens = (reached - shared) * new.hashes.block_size
    if apart and change is None:
        change, reached, restored = _best_change(first, second, shared, old.hashes, ask)
        lost_tokens = _lost_tokens(change, new, restored, shared, reached)
    return Explanation(
        shared_blocks=shared,
        lost_blocks=min(reached, len(new.hashes)) - shared if change else 0,
        lost_tokens=lost_tokens,
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
) -> tuple[Change, int, _Answer]:
    """The change whose restoring makes the requests share most blocks.

    Returned with it are the number of these blocks and the answer to the restored request. Of
    several such changes the outermost is returned.
    """
    tried: list[tuple[int, Change, _Answer]] = []
    listed: list[Change] = []
    for change, _ in zip(changes(first, second), range(_MAX_CHANGES), strict=False):
        listed.append(change)
        try:
            restored = ask(change.restored)
        except InexactError:  # this part cannot be restored alone
            continue
        tried.append((num_same(old, restored.hashes), change, restored))
    best = max(tried, key=lambda each: each[0], default=None)
    if best is not None and (best[0] > shared or len(listed) == 1):
        return best[1], best[0], best[2]
    text = " ".join(each.text for each in listed) or "No part of the requests differs."
    unrelated = any(each.unrelated for each in listed)
    return Change(Cause.SEVERAL, text, first, unrelated=unrelated), len(old), ask(first)


def _lost_tokens(change: Change, new: _Answer, restored: _Answer, shared: int, reached: int) -> int:
    """The number of tokens in blocks `shared` to `reached` that are after the restored part."""
    if change.unrelated:
        return 0
    block_size = new.hashes.block_size
    start, end = shared * block_size, reached * block_size
    # After a generation prompt follows the rest of a longer conversation, which is not lost.
    if change.cause is not Cause.GENERATION_PROMPT:
        sides = [
            each.ids if change.same_item else _identified_ids(each.routing)
            for each in (new, restored)
        ]
        at = first_difference(*sides)
        room = min(map(len, sides)) - at
        if room:
            behind = first_difference(*(side[len(side) - room :][::-1] for side in sides))
            start = max(start, len(restored.ids) - behind)
    return max(0, end - start)


def _identified_ids(routing: Routing) -> npt.NDArray[np.int64]:
    """The token IDs, with each item's positions replaced by a negative number for its identity."""
    ids = routing.token_ids.astype(np.int64)
    for placeholder, identity in routing.identified():
        end = placeholder.offset + placeholder.length
        ids[placeholder.offset : end] = -1 - zlib.crc32(identity.value.encode())
    return ids


def _side(answer: _Answer, at: int, tokenizer: Tokenizer) -> Side:
    ids = answer.ids
    before, after = ids[max(0, at - _CONTEXT) : at], ids[at : at + _CONTEXT]
    texts = (tokenizer.decode(part.tolist()) for part in (before, after))
    return Side(len(ids), len(answer.hashes), *texts)
