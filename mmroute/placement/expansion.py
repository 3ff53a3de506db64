"""Finding placeholders and splicing replacements: the steps all placement rules share.

Source: vLLM ``multimodal/processing/processor.py``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry import EmbedRuns, Replacement
from mmroute.requests.items import Modality
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.tokenizers import Tokenizer


class PlaceholderRange(NamedTuple):
    """The range of one item in the expanded prompt.

    Attributes:
        item: the item's index among the items of its modality, from 0.
        offset: the index of the range's first token.
        length: the number of tokens.
        embed_runs: the tokens of the range that receive features, as runs; None if all do.
        modality: the modality of the item.
        embeds_known: whether `embed_runs` holds. False if the range comes from a server that
            does not say which tokens receive features.
    """

    item: int
    offset: int
    length: int
    embed_runs: EmbedRuns | None = None
    modality: Modality = Modality.IMAGE
    embeds_known: bool = True

    def __repr__(self) -> str:
        some = ", some without features" if self.embed_runs else ""
        return f"<{self.modality} {self.item} at {self.offset}, {self.length} tokens{some}>"


class Expansion(NamedTuple):
    """An expanded prompt."""

    token_ids: TokenIds  # the expanded prompt, shape (n,), uint32
    placeholders: tuple[PlaceholderRange, ...]  # one range per item, in the order of their offsets


class Insertion(NamedTuple):
    """One item that is to be placed."""

    modality: Modality
    item: int  # the item's index among the items of its modality, from 0
    # The token IDs of the placeholder; empty if the prompt has the replacement already.
    target: tuple[int, ...]
    replacement: Replacement  # the token IDs that take the placeholder's place

    def at(self, offset: int) -> PlaceholderRange:
        """The item's range, if it begins at `offset` of the expanded prompt."""
        replacement = self.replacement
        length = len(replacement.token_ids)
        return PlaceholderRange(self.item, offset, length, replacement.embed_runs, self.modality)


Match: TypeAlias = tuple[int, int, int]
"""A placeholder of an un-expanded prompt: the index of its insertion, its start and its stop."""


class Placement(Protocol):
    """A rule by which items take the placeholders of a prompt. Immutable."""

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        """Put every item in its place."""


Target = TypeVar("Target", bound=Hashable)


def match_targets(ids: TokenIds, insertions: Sequence[Insertion]) -> list[Match]:
    """The placeholders that the insertions take; fewer if the prompt has too few.

    Insertions with the same target form a queue: the k-th placeholder takes the k-th of them. It
    makes no difference whether the template or the user wrote a placeholder. Each step takes the
    earliest placeholder, of any queue, that begins after the last one taken.
    """
    targets = [insertion.target for insertion in insertions]
    # Nearly every request has one target of one token; numpy finds that one fast.
    if len(targets[0]) == 1 and targets.count(targets[0]) == len(targets):
        starts = (ids == targets[0][0]).nonzero()[0][: len(targets)].tolist()
        return [(index, at, at + 1) for index, at in enumerate(starts)]

    def find(target: tuple[int, ...], start: int) -> int:
        return find_sequence(ids, np.array(target, dtype=np.uint32), start)

    return _plan(targets, find, [len(target) for target in targets])


def splice(ids: TokenIds, matches: Sequence[Match], insertions: Sequence[Insertion]) -> Expansion:
    """Put the insertions in the places of the matches, which are sorted and do not overlap."""
    parts: list[TokenIds] = []
    placeholders: list[PlaceholderRange] = []
    end = shift = 0
    for index, start, stop in matches:
        placed = insertions[index].at(start + shift)
        placeholders.append(placed)
        parts += ids[end:start], insertions[index].replacement.token_ids
        shift += placed.length - (stop - start)
        end = stop
    parts.append(ids[end:])
    # Joined as bytes, which takes half the time of numpy's concatenate.
    joined = b"".join(parts)  # type: ignore[arg-type]  # arrays are buffers, which mypy knows from Python 3.12 on
    return Expansion(np.frombuffer(joined, dtype=np.uint32), tuple(placeholders))


def find_sequence(ids: TokenIds, sequence: TokenIds, start: int = 0) -> int:
    """Index of the first occurrence of a non-empty sequence at or after `start`; -1 if none."""
    last = len(ids) - len(sequence)
    for at in np.flatnonzero(ids[start : last + 1] == sequence[0]) + start:
        if np.array_equal(ids[at : at + len(sequence)], sequence):
            return int(at)
    return -1


def find_replacements(
    ids: TokenIds, insertions: Sequence[Insertion]
) -> tuple[PlaceholderRange, ...]:
    """The ranges of replacements that already stand in a prompt, by position."""
    waiting: dict[Modality, deque[Insertion]] = defaultdict(deque)
    for insertion in insertions:
        waiting[insertion.modality].append(insertion)
    placeholders: list[PlaceholderRange] = []
    at = 0
    while waiting:
        candidates: list[tuple[int, int, Insertion]] = []
        for order, queue in enumerate(waiting.values()):
            offset = find_sequence(ids, queue[0].replacement.token_ids, at)
            if offset < 0:
                raise too_few(len(placeholders), insertions)
            candidates.append((offset, order, queue[0]))
        offset, _, first = min(candidates, key=lambda entry: entry[:2])
        placeholders.append(first.at(offset))
        at = offset + len(first.replacement.token_ids)
        waiting[first.modality].popleft()
        if not waiting[first.modality]:
            del waiting[first.modality]
    return tuple(placeholders)


def expand_via_text(
    tokenizer: Tokenizer, ids: TokenIds, insertions: Sequence[Insertion], *, in_parts: bool = False
) -> TokenIds:
    """The engine's second attempt, made if the token IDs have too few placeholders.

    The prompt is decoded, its placeholders are replaced as text, and the text is encoded again:
    whole, or each part between placeholders and each replacement for itself.
    """
    text = tokenizer.decode(ids.tolist())
    targets = [tokenizer.decode(insertion.target) for insertion in insertions]

    def find(target: str, start: int) -> int:
        return text.find(target, start) if target else -1

    matches = _plan(targets, find, list(map(len, targets)))
    if len(matches) < len(insertions):
        raise too_few(len(matches), insertions)
    parts: list[str] = []
    end = 0
    for index, start, stop in matches:
        replacement = insertions[index].replacement.token_ids
        parts += [text[end:start], tokenizer.decode(replacement.tolist())]
        end = stop
    parts.append(text[end:])
    texts = parts if in_parts else ["".join(parts)]
    encoded = [tokenizer.encode(part, add_special_tokens=False) for part in texts]
    return np.concatenate(encoded)


def too_few(num_placed: int, insertions: Sequence[Insertion]) -> InexactError:
    """The refusal for a prompt with fewer placeholders than items."""
    kinds = " and ".join(dict.fromkeys(f"{insertion.modality}s" for insertion in insertions))
    return InexactError(
        Reason.PLACEHOLDER_COUNT_MISMATCH,
        f"the prompt has placeholders for {num_placed} of {len(insertions)} {kinds}; the engine "
        "refuses it",
    )


def _plan(
    targets: Sequence[Target], find: Callable[[Target, int], int], lengths: Sequence[int]
) -> list[Match]:
    """The place of each insertion, in token IDs or in text."""
    queues: dict[Target, deque[int]] = defaultdict(deque)
    for index, target in enumerate(targets):
        queues[target].append(index)
    places = {target: find(target, 0) for target in queues}
    matches: list[Match] = []
    while True:
        waiting = [
            (start, start + lengths[queues[target][0]], queues[target][0])
            for target, start in places.items()
            if start >= 0 and queues[target]
        ]
        if not waiting:
            return matches
        start, stop, index = min(waiting)
        matches.append((index, start, stop))
        queues[targets[index]].popleft()
        for target, start in places.items():
            if 0 <= start < stop:
                places[target] = find(target, stop)
