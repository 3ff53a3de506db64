"""Finding placeholders and splicing replacements: the steps all placement rules share.

Source: vLLM 0.33.0 ``multimodal/processing/processor.py``.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry import EmbedRuns, Replacement, TokenIds
from mmroute.tokenizers import Tokenizer

__all__ = [
    "Expansion",
    "Match",
    "PlaceholderRange",
    "Placement",
    "expand_via_text",
    "find_replacements",
    "find_sequence",
    "match_token",
    "splice",
]


@dataclass(frozen=True, slots=True)
class PlaceholderRange:
    """Where one item stands in the expanded prompt.

    Attributes:
        item: the item's number in the request, counted from 0.
        offset: index of its first token.
        length: how many tokens.
        embed_runs: which of them receive features; None if all do.
        modality: the kind of item.
        embeds_known: false where only a server told the range, and not which of it receive
            features; `embed_runs` says nothing then.
    """

    item: int
    offset: int
    length: int
    embed_runs: EmbedRuns | None = None
    modality: str = "image"
    embeds_known: bool = True


@dataclass(frozen=True, slots=True)
class Expansion:
    """An expanded prompt.

    Attributes:
        token_ids: shape (n,).
        placeholders: one range per item, by position.
    """

    token_ids: TokenIds
    placeholders: tuple[PlaceholderRange, ...]


class Match(NamedTuple):
    """A placeholder found in an un-expanded prompt: the span, and the item that takes it."""

    item: int
    start: int
    stop: int


def match_token(ids: TokenIds, token_id: int, count: int) -> list[Match]:
    """The first `count` placeholders of one token; the k-th takes the k-th item."""
    found = (ids == token_id).nonzero()[0][:count].tolist()
    return [Match(item, at, at + 1) for item, at in enumerate(found)]


class Placement(Protocol):
    """A rule by which items take the placeholders of a prompt. Immutable."""

    def expand(self, ids: TokenIds, replacements: Sequence[Replacement]) -> Expansion:
        """Put every item in its place.

        Args:
            ids: the un-expanded prompt, shape (n,).
            replacements: one per item, at least one.

        Raises:
            InexactError: `placeholder_count_mismatch`.
        """


def splice(
    ids: TokenIds, matches: Sequence[Match], replacements: Sequence[Replacement]
) -> Expansion:
    """Put the replacements where the matches are; matches are sorted and do not overlap."""
    pieces: list[TokenIds] = []
    placeholders: list[PlaceholderRange] = []
    end = shift = 0
    for item, start, stop in matches:
        replacement = replacements[item]
        placeholders.append(_range(item, start + shift, replacement))
        pieces += ids[end:start], replacement.token_ids
        shift += len(replacement.token_ids) - (stop - start)
        end = stop
    pieces.append(ids[end:])
    return Expansion(np.concatenate(pieces), tuple(placeholders))


def find_sequence(ids: TokenIds, sequence: TokenIds, start: int = 0) -> int:
    """Index of the first occurrence of a non-empty sequence at or after `start`; -1 if none."""
    last = len(ids) - len(sequence)
    for at in np.flatnonzero(ids[start : last + 1] == sequence[0]) + start:
        if np.array_equal(ids[at : at + len(sequence)], sequence):
            return int(at)
    return -1


def find_replacements(
    ids: TokenIds, replacements: Sequence[Replacement]
) -> tuple[PlaceholderRange, ...]:
    """The ranges of replacements that already stand in a prompt, in their order.

    Raises:
        InexactError: `placeholder_count_mismatch` if one of them is not found.
    """
    placeholders = []
    at = 0
    for item, replacement in enumerate(replacements):
        found = find_sequence(ids, replacement.token_ids, at)
        if found < 0:
            raise too_few(item, len(replacements))
        placeholders.append(_range(item, found, replacement))
        at = found + len(replacement.token_ids)
    return tuple(placeholders)


def expand_via_text(
    tokenizer: Tokenizer,
    ids: TokenIds,
    replacements: Sequence[Replacement],
    target_of: Sequence[Sequence[int]],
) -> TokenIds:
    """The engine's second attempt, when token IDs show too few placeholders.

    The prompt is decoded, placeholders are replaced as text, and all of it is encoded again.

    Args:
        tokenizer: the model's.
        ids: the un-expanded prompt.
        replacements: one per item.
        target_of: for each item the token IDs of its placeholder.

    Raises:
        InexactError: `placeholder_count_mismatch` if the text shows too few as well.
    """
    text = tokenizer.decode(ids.tolist())
    targets = [tokenizer.decode(target) for target in target_of]
    # Items with the same placeholder queue up; only the first of each queue is looked for.
    queues: dict[str, deque[int]] = defaultdict(deque)
    for item, target in enumerate(targets):
        queues[target].append(item)
    heap = [(text.find(target), queue[0], target) for target, queue in queues.items() if target]
    heapq.heapify(heap)
    pieces: list[str] = []
    end = done = 0
    while done < len(replacements):
        if not heap:
            raise too_few(done, len(replacements))
        at, item, target = heapq.heappop(heap)
        if at < 0:
            continue
        if at < end:  # found before the last replacement was made, and partly inside it
            heapq.heappush(heap, (text.find(target, end), item, target))
            continue
        pieces += [text[end:at], tokenizer.decode(replacements[item].token_ids.tolist())]
        end = at + len(target)
        done += 1
        queues[target].popleft()
        if queues[target]:
            heapq.heappush(heap, (text.find(target, end), queues[target][0], target))
    pieces.append(text[end:])
    return tokenizer.encode("".join(pieces), add_special_tokens=False)


def too_few(found: int, wanted: int) -> InexactError:
    """The refusal for a prompt with fewer placeholders than items."""
    return InexactError(
        Reason.PLACEHOLDER_COUNT_MISMATCH,
        f"the prompt has placeholders for {found} of {wanted} images; the engine refuses it",
    )


def _range(item: int, offset: int, replacement: Replacement) -> PlaceholderRange:
    return PlaceholderRange(item, offset, len(replacement.token_ids), replacement.embed_runs)
