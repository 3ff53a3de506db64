"""Placement for engines that refuse a prompt without exactly one placeholder for each image.

Source: SGLang ``srt/multimodal/processors/base_processor.py`` (`load_mm_data`,
`process_and_combine_mm_data`), ``qwen_vl.py``, ``gemma3.py``, ``pixtral.py``; transformers 5.19.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from mmroute.errors import InexactError, Reason
from mmroute.geometry import TokenIds
from mmroute.placement.expansion import (
    Expansion,
    Insertion,
    PlaceholderRange,
    expand_via_text,
    match_targets,
    splice,
)
from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class ExactRule:
    """Placement by targets for SGLang, which refuses a prompt with more or fewer than its images.

    Attributes:
        words: texts that the engine or its processor reads as placeholders of some kind.
        in_text: whether replacements hold ordinary text, whose tokens merge with the text around.
    """

    words: tuple[str, ...] = ()
    in_text: bool = False

    def build(self, tokenizer: Tokenizer, tokens: Mapping[str, int]) -> ExactTargets:
        around = (tokens["before"], tokens["after"]) if "before" in tokens else None
        features = tokens["image"] if self.in_text else None
        return ExactTargets(tokenizer, around, tokens.get("video"), features, self.words)


@dataclass(frozen=True, slots=True)
class ExactTargets:
    """Placement of images in prompts that have one placeholder for each.

    Ranges begin with the first feature and end with the last.

    Attributes:
        tokenizer: the model's tokenizer.
        around: the tokens that must stand before and after each placeholder; None for no check.
        refused: a token that a prompt with images must not have; None for no such token.
        features: the token ID of a feature if the prompt is expanded as text; None if it is
            expanded as token IDs.
        words: texts that a prompt with images must not have.
    """

    keeps_prefix: ClassVar = False
    tokenizer: Tokenizer
    around: tuple[int, int] | None
    refused: int | None
    features: int | None
    words: tuple[str, ...]

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        self._check(ids, insertions)
        if self.features is None:
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
        if self.around is not None:
            before, after = self.around
            inside = places[0] > 0 and places[-1] < len(ids) - 1
            if not inside or (ids[places - 1] != before).any() or (ids[places + 1] != after).any():
                _refuse("a placeholder lacks the tokens that must stand before and after it")
        if self.refused is not None and (ids == self.refused).any():
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
        (places,) = (ids == self.features).nonzero()
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


def _trimmed(placed: PlaceholderRange) -> PlaceholderRange:
    """A range cut to begin with its first feature and end with its last."""
    runs = list(placed.embed_runs or ())
    offset = placed.offset
    if runs and not runs[0][0]:
        offset += runs.pop(0)[1]
    if runs and not runs[-1][0]:
        runs.pop()
    if not placed.embed_runs:
        return placed
    length = sum(count for _, count in runs)
    return placed._replace(
        offset=offset, length=length, embed_runs=tuple(runs) if len(runs) > 1 else None
    )


def _refuse(why: str) -> NoReturn:
    raise InexactError(
        Reason.PLACEHOLDER_COUNT_MISMATCH,
        f"{why}; the engine refuses the request, or answers without an image",
    )
