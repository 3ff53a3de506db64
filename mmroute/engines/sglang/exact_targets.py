"""Placement for engines that refuse a prompt without exactly one placeholder for each image.

Source: SGLang ``srt/multimodal/processors/base_processor.py`` (`load_mm_data`,
`process_and_combine_mm_data`), ``qwen_vl.py``, ``gemma3.py``, ``pixtral.py``; transformers 5.19.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from mmroute.errors import InexactError, Reason
from mmroute.placement.expansion import (
    Expansion,
    Insertion,
    PlaceholderRange,
    expand_via_text,
    match_targets,
    splice,
)
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class ExactTargets:
    """Placement by targets for SGLang, which refuses a prompt with more or fewer than its images.

    Ranges begin with the first feature and end with the last.
    """

    keeps_prefix: ClassVar = False
    in_text: ClassVar = False  # whether the prompt is expanded as text
    # Texts that the engine or its processor reads as placeholders of some kind.
    words: ClassVar[tuple[str, ...]] = ()
    tokenizer: Tokenizer
    image: int  # the token of an image's features
    # A token that a prompt with images must not have; None for no such token.
    video: int | None = None
    # The token that must stand before each placeholder; None for no check.
    before: int | None = None
    # The token that must stand after each placeholder, where `before` is checked.
    after: int | None = None

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        self._check(ids, insertions)
        if not self.in_text:
            matches = match_targets(ids, insertions)
            expansion = splice(ids, matches, insertions)
            return expansion._replace(placeholders=tuple(map(_trimmed, expansion.placeholders)))
        expanded = expand_via_text(self.tokenizer, ids, insertions)
        return Expansion(expanded, tuple(self._feature_ranges(expanded, insertions)))

    def _check(self, ids: TokenIds, insertions: Sequence[Insertion]) -> None:
        (target,) = insertions[0].target
        (places,) = (ids == target).nonzero()
        if len(places) != len(insertions):
            _refuse(f"the prompt has {len(places)} placeholders for {len(insertions)} images")
        if self.before is not None:
            inside = places[0] > 0 and places[-1] < len(ids) - 1
            if (
                not inside
                or (ids[places - 1] != self.before).any()
                or (ids[places + 1] != self.after).any()
            ):
                _refuse("a placeholder lacks the tokens that must stand before and after it")
        if self.video is not None and (ids == self.video).any():
            _refuse("the prompt has a placeholder of another modality")
        if self.words:
            text = self.tokenizer.decode(ids.tolist())
            for word in self.words:
                if word in text:
                    _refuse(f"beside images the text {word!r} is read as a placeholder")

    def _feature_ranges(
        self, ids: TokenIds, insertions: Sequence[Insertion]
    ) -> Iterator[PlaceholderRange]:
        """The range of each image's features."""
        (places,) = (ids == self.image).nonzero()
        if len(places) != sum(insertion.replacement.num_embeds for insertion in insertions):
            _refuse("the prompt has tokens of features that belong to no image")
        start = 0
        for insertion in insertions:
            count = insertion.replacement.num_embeds
            first, last = int(places[start]), int(places[start + count - 1])
            if last - first != count - 1:
                _refuse("the features of an image do not stand together")
            yield PlaceholderRange(insertion.item, first, count, None, insertion.modality)
            start += count


class ExactPads(ExactTargets):
    """Placement for SGLang, which wants exactly one pad for each image: Qwen's models."""

    __slots__ = ()
    words = ("<image>", "<|placeholder|>")


class ExactRows(ExactTargets):
    """As `exact_pads`, for images that have rows of tokens: Pixtral."""

    __slots__ = ()
    words = ("<placeholder>",)


class ExactInText(ExactTargets):
    """As `exact_pads`, for replacements with text whose tokens merge with what is around."""

    __slots__ = ()
    in_text = True


def _trimmed(placed: PlaceholderRange) -> PlaceholderRange:
    """A range cut to begin with its first feature and end with its last."""
    if not placed.embed_runs:
        return placed
    runs, offset = placed.embed_runs, placed.offset
    if not runs[0][0]:
        offset += runs[0][1]
        runs = runs[1:]
    if runs and not runs[-1][0]:
        runs = runs[:-1]
    length = sum(count for _, count in runs)
    return placed._replace(offset=offset, length=length, embed_runs=runs if len(runs) > 1 else None)


def _refuse(why: str) -> NoReturn:
    raise InexactError(
        Reason.PLACEHOLDER_COUNT_MISMATCH,
        f"{why}; the engine refuses the request, or answers without an image",
    )
