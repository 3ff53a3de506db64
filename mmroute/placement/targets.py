"""The general rule, by which an item takes the next placeholder of its target; and its variants.

Source: vLLM ``multimodal/processing/processor.py`` (`PromptIndexTargets`),
``model_executor/models/paligemma.py``, ``blip2.py``, ``openvla.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry import Replacement
from mmroute.placement.expansion import (
    Expansion,
    Insertion,
    expand_via_text,
    find_replacements,
    match_targets,
    splice,
    too_few,
)
from mmroute.requests.items import Modality
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_ALIGNMENT: Final = 4


@dataclass(frozen=True, slots=True)
class AlignedTargets:
    """Placement by targets, with pads so that each image starts at the end of a group of four.

    Source: vLLM ``models/deepseek_v4/common/mm_preprocess.py``
    (``_apply_token_matches_with_placeholders``).
    """

    pad: int  # the token of a pad

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) < len(insertions):
            raise too_few(len(matches), insertions)
        padded = list(insertions)
        shift = 0
        for index, start, stop in matches:
            replacement = self._padded(insertions[index].replacement, start + shift)
            padded[index] = insertions[index]._replace(replacement=replacement)
            shift += len(replacement.token_ids) - (stop - start)
        return splice(ids, matches, padded)

    def _padded(self, replacement: Replacement, offset: int) -> Replacement:
        pads = _ALIGNMENT - 1 - offset % _ALIGNMENT
        tokens = np.concatenate((np.full(pads, self.pad, np.uint32), replacement.token_ids))
        (is_embed, count), *runs = replacement.embed_runs or ((True, len(replacement.token_ids)),)
        if is_embed:
            return Replacement(tokens, ((False, pads), (True, count), *runs))
        return Replacement(tokens, ((False, pads + count), *runs))


@dataclass(frozen=True, slots=True)
class AtStart:
    """Placement in front of the prompt, or behind the target with which it must begin."""

    # The token that is put at the end of a prompt with an item, unless it is there.
    ending: int | None = None

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        start = len(insertions[0].target)
        if tuple(ids[:start].tolist()) != insertions[0].target:
            raise too_few(0, insertions)
        matches = [(index, start, start) for index in range(len(insertions))]
        expansion = splice(ids, matches, insertions)
        if self.ending is None or expansion.token_ids[-1] == self.ending:
            return expansion
        ended = np.append(expansion.token_ids, np.uint32(self.ending))
        return expansion._replace(token_ids=ended)


@dataclass(frozen=True, slots=True)
class Targets:
    """Placement by targets of one or several tokens. Surplus placeholders stay as they are."""

    tokenizer: Tokenizer  # the model's tokenizer, needed if token IDs show too few placeholders

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) == len(insertions):
            return splice(ids, matches, insertions)
        expanded = expand_via_text(self.tokenizer, ids, insertions)
        return Expansion(expanded, find_replacements(expanded, insertions))


@dataclass(frozen=True, slots=True)
class TargetsInText:
    """`Targets` for targets that are text: beside other text they may have other tokens.

    Then the engine replaces them in the text, and encodes what stands between them for itself.

    Source: vLLM ``model_executor/models/minicpmv.py`` (`_apply_prompt_updates`).
    """

    tokenizer: Tokenizer

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) == len(insertions):
            expanded = splice(ids, matches, insertions).token_ids
        else:
            expanded = expand_via_text(self.tokenizer, ids, insertions, in_parts=True)
        return Expansion(expanded, find_replacements(expanded, insertions))


@dataclass(frozen=True, slots=True)
class TargetsAfterFirst(Targets):
    """`Targets` in a prompt that is made to begin with one token: Molmo 2.

    Source: vLLM ``model_executor/models/molmo2.py`` (`_postprocess_prompt`).
    """

    first: int  # this token

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        if not len(ids) or ids[0] != self.first:
            ids = np.insert(ids, 0, self.first)
        return Targets.expand(self, ids, insertions)


@dataclass(frozen=True, slots=True)
class AudioBesideVideo(Targets):
    """`Targets` for models that can also use the sound of a video as an audio.

    For a video in its cache, the engine does not know whether its sound was used as an audio. It
    counts the placeholders instead, and takes a surplus one as a sign that the sound was used.

    Source: vLLM ``model_executor/models/qwen2_5_omni_thinker.py``
    (`_maybe_apply_prompt_updates`).
    """

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        targets = [
            insertion.target for insertion in insertions if insertion.modality is not Modality.IMAGE
        ]
        count = int(np.isin(ids, targets).sum())
        if len(set(targets)) > 1 and count != len(targets):
            raise InexactError(
                Reason.PLACEHOLDER_COUNT_MISMATCH,
                f"the prompt has {count} placeholders for {len(targets)} videos and audios; what "
                "the engine makes of them depends on the videos in its cache. Send no "
                "placeholders in texts.",
            )
        return Targets.expand(self, ids, insertions)


@dataclass(frozen=True, slots=True)
class RenderedByTokenizer:
    """Placement for prompts in which the renderer already put the replacements (mistral-common).

    Source: vLLM ``model_executor/models/pixtral.py``: a prompt without them is refused.
    """

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        return Expansion(ids, find_replacements(ids, insertions))
