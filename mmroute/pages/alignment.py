"""The tokens of two prompts, aligned around their first difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from mmroute.geometry import TokenIds
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt

Ranges: TypeAlias = Iterable[tuple[int, int]]
"""The offset and length of each item of a prompt."""

NOT_DECODED: Final = (ValueError, KeyError, OverflowError, IndexError)
"""The errors of tokenizers for an ID that is not in their vocabulary."""

_BEFORE: Final = 3  # columns shown before the first difference
_COLUMNS: Final = 60


@dataclass(frozen=True, slots=True)
class Run:
    """A run of equal tokens.

    Attributes:
        id: the token ID.
        count: the number of tokens in the run.
        at: the position of the first token.
        text: the text of one token, decoded alone.
        kind: the kind of the token: `text`, `special` or `item`.
    """

    id: int
    count: int
    at: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Column:
    """The runs of two prompts at one place.

    Attributes:
        ours: the run of the first prompt; None if it has none here.
        theirs: the run of the second prompt; None if it has none here.
        same: whether the two runs are equal.
    """

    ours: Run | None
    theirs: Run | None
    same: bool


@dataclass(frozen=True, slots=True)
class Alignment:
    """Some tokens of two prompts.

    Attributes:
        columns: the columns around the first difference, or from the beginning if there is none.
        first: the index of the column with the first difference; None if there is none.
        before: the number of tokens before the columns.
        more: whether there are tokens after the columns.
    """

    columns: tuple[Column, ...]
    first: int | None
    before: int
    more: bool


def aligned(
    ours: TokenIds | None,
    our_items: Ranges,
    theirs: TokenIds | None,
    their_items: Ranges,
    tokenizer: Tokenizer,
) -> Alignment:
    """Align two prompts, so that equal tokens are side by side also after a difference.

    Args:
        ours: the token IDs of the first prompt, shape (n,); None for no answer.
        our_items: the ranges of items in the first prompt.
        theirs: the token IDs of the second prompt, shape (n,); None for no answer.
        their_items: the ranges of items in the second prompt.
        tokenizer: the model's tokenizer.
    """
    special = {tokenizer.token_id(text) for text in tokenizer.named_tokens}
    sides = [_runs(ours, our_items), _runs(theirs, their_items)]
    pairs = zip_longest(*([run[:2] for run in side] for side in sides))
    first = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
    start = max(0, (first or 0) - _BEFORE)
    shown = [
        [_run(each, special, tokenizer) for each in side[start : start + _COLUMNS]]
        for side in sides
    ]
    return Alignment(
        columns=tuple(_columns(*shown)),
        first=None if first is None else first - start,
        before=sum(count for _, count, *_ in max(sides, key=len)[:start]),
        more=max(map(len, sides)) > start + _COLUMNS,
    )


def first_difference(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> int:
    """The index of the first ID that differs; the shorter length if one is a prefix of the other.

    >>> first_difference(np.array([1, 2], np.uint32), np.array([1, 3], np.uint32))
    1
    """
    length = min(len(ours), len(theirs))
    differing = np.flatnonzero(ours[:length] != theirs[:length])
    return int(differing[0]) if len(differing) else length


def num_same(first: Sequence[object], second: Sequence[object]) -> int:
    """The number of first elements that are the same."""
    for count, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return count
    return min(len(first), len(second))


_Tokens: TypeAlias = "tuple[int, int, int, bool]"  # ID, how often, position, whether of an item


def _runs(token_ids: TokenIds | None, items: Ranges) -> list[_Tokens]:
    if token_ids is None:
        return []
    inside = {i for offset, length in items for i in range(offset, offset + length)}
    numbered = enumerate(token_ids.tolist())
    runs = []
    for (token_id, in_item), run in groupby(numbered, lambda pair: (pair[1], pair[0] in inside)):
        positions = [position for position, _ in run]
        runs.append((token_id, len(positions), positions[0], in_item))
    return runs


def _run(tokens: _Tokens, special: set[int | None], tokenizer: Tokenizer) -> Run:
    token_id, count, at, in_item = tokens
    kind = "item" if in_item else "special" if token_id in special else "text"
    return Run(token_id, count, at, _text(tokenizer, token_id), kind)


def _columns(ours: Sequence[Run], theirs: Sequence[Run]) -> Iterator[Column]:
    ids = [run.id for run in ours], [run.id for run in theirs]
    matcher = SequenceMatcher(None, *ids, autojunk=False)
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        for one, other in zip_longest(ours[a:a_end], theirs[b:b_end]):
            same = bool(one and other) and (one.id, one.count) == (other.id, other.count)
            yield Column(one, other, same)


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    try:
        return tokenizer.decode([token_id])
    except NOT_DECODED:
        return "?"
