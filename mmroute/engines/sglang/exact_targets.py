"""Placement for engines that refuse a prompt without exactly one placeholder for each image.

Source: SGLang ``srt/multimodal/processors/base_processor.py`` (`load_mm_data`,
`process_and_combine_mm_data`), ``qwen_vl.py``, ``gemma3.py``, ``pixtral.py``; transformers 5.19.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry import EmbedRuns
from mmroute.placement.expansion import (
    Expansion,
    Insertion,
    Match,
    PlaceholderRange,
    expand_via_text,
    match_targets,
    splice,
)
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ExactTargets:
    """Placement by targets for SGLang, which refuses a prompt with more or fewer than its images.

    Ranges begin with the first feature and end with the last.
    """

    in_text: ClassVar = False  # whether the prompt is expanded as text
    # Texts that the engine or its processor reads as placeholders of some kind.
    words: ClassVar[tuple[str, ...]] = ()
    tokenizer: Tokenizer
    image: int  # the token of an image's features
    # Tokens that a prompt with images must not have; None for no such token.
    video: int | None = None
    audio: int | None = None
    # The token that must stand before each placeholder; None for no check.
    before: int | None = None
    # The token that must stand after each placeholder, where `before` is checked.
    after: int | None = None

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        self._check(ids, insertions)
        if not self.in_text:
            return self._spliced(ids, match_targets(ids, insertions), insertions)
        added = self.tokenizer.encode("", add_special_tokens=True)
        kept = len(added) if np.array_equal(ids[: len(added)], added) else 0
        expanded = np.concatenate(
            [ids[:kept], expand_via_text(self.tokenizer, ids[kept:], insertions)]
        )
        self._check_ends(expanded)
        return Expansion(expanded, tuple(self._feature_ranges(expanded, insertions)))

    def _spliced(
        self, ids: TokenIds, matches: Sequence[Match], insertions: Sequence[Insertion]
    ) -> Expansion:
        expansion = splice(ids, matches, insertions)
        self._check_ends(expansion.token_ids)
        return expansion._replace(placeholders=tuple(map(_trimmed, expansion.placeholders)))

    def _check_ends(self, ids: TokenIds) -> None:
        """Refuse a prompt that begins and ends with features: `get_mm_items_offset` goes round."""
        if ids[0] == ids[-1] == self.image:
            _refuse("the prompt begins and ends with the features of images")

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
        for other in (self.video, self.audio):
            if other is not None and (ids == other).any():
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
            own = places[start : start + count]
            first, length = int(own[0]), int(own[-1] - own[0]) + 1
            runs = _runs(own - first) if length > count else None
            yield PlaceholderRange(insertion.item, first, length, runs, insertion.modality)
            start += count


class ExactPads(ExactTargets):
    """Placement for SGLang, which wants exactly one pad for each image: Qwen's models."""

    __slots__ = ()
    words = ("<image>", "<|placeholder|>")


class ExactRows(ExactTargets):
    """As `exact_targets`, for images that have rows of tokens: Pixtral."""

    __slots__ = ()
    words = ("<placeholder>",)


class AllAtFirst(ExactTargets):
    """As `exact_targets`, but all images stand at the first placeholder, and the others stay.

    Source: SGLang 0.5.23 ``srt/multimodal/processors/nano_nemotron_vl.py`` (`replace`, once).
    """

    __slots__ = ()

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        self._check(ids, insertions)
        ((_, start, stop),) = match_targets(ids, insertions[:1])
        matches = [(0, start, stop), *((index, stop, stop) for index in range(1, len(insertions)))]
        return self._spliced(ids, matches, insertions)


class ExactInText(ExactTargets):
    """As `exact_targets`, for replacements with text whose tokens merge with what is around."""

    __slots__ = ()
    in_text = True


def _runs(places: npt.NDArray[np.intp]) -> EmbedRuns:
    """The runs of a range that begins and ends with a feature, by the places of its features."""
    runs: list[tuple[bool, int]] = []
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        gap = int(run[0]) - sum(count for _, count in runs)
        runs += [(False, gap), (True, len(run))] if gap else [(True, len(run))]
    return tuple(runs)


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
