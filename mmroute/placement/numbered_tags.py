"""Phi-3-vision: ``<|image_1|>`` is ordinary text, and a prompt with images is encoded anew.

With at least one image the engine drops a leading BOS, decodes the prompt, takes the space
after each special token away, splits the text at the tags, and encodes every chunk with a BOS
of its own and every tag without. So the order of tags is free, and what decoding changes stays
changed. Source: vLLM 0.33.0 ``model_executor/models/phi3v.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import numpy as np

from mmroute.geometry import Replacement, TokenIds
from mmroute.placement.expansion import (
    Expansion,
    Match,
    PlaceholderRange,
    expand_via_text,
    find_replacements,
    splice,
)
from mmroute.tokenizers import Tokenizer

__all__ = ["NumberedTags"]

_TAG: Final = re.compile(r"<\|image_\d+\|>")


@dataclass(frozen=True, slots=True)
class NumberedTags:
    """Placement by numbered tags in the text.

    Attributes:
        tokenizer: the model's.
        dropped_start: a start of the expanded prompt whose second token the engine drops.
    """

    tokenizer: Tokenizer
    dropped_start: tuple[int, ...]

    @classmethod
    def build(cls, tokenizer: Tokenizer, image_token: str) -> NumberedTags:
        """Encode once what the engine compares the start of a prompt with."""
        start = tokenizer.encode(f"<s> {image_token}", add_special_tokens=False)
        return cls(tokenizer, tuple(start.tolist()))

    def expand(self, ids: TokenIds, replacements: Sequence[Replacement]) -> Expansion:
        """See `Placement.expand`."""
        prompt = self._encode_anew(ids.tolist())
        tags: list[list[int]] = [
            self.tokenizer.encode(f"<|image_{number}|>", add_special_tokens=False).tolist()
            for number in range(1, len(replacements) + 1)
        ]
        matches = _match_in_order(prompt, tags)
        if len(matches) == len(replacements):
            expansion = splice(prompt, matches, replacements)
        else:
            expanded = expand_via_text(self.tokenizer, prompt, replacements, tags)
            expansion = Expansion(expanded, find_replacements(expanded, replacements))
        return self._without_dropped(expansion)

    def _encode_anew(self, ids: list[int]) -> TokenIds:
        if ids and ids[0] == self.tokenizer.bos_token_id:
            ids = ids[1:]
        text = self.tokenizer.decode(ids)
        for special in self.tokenizer.named_tokens:
            text = text.replace(f"{special} ", special)
        pieces: list[TokenIds] = []
        for chunk, tag in zip_longest(_TAG.split(text), _TAG.findall(text), fillvalue=None):
            pieces.append(self.tokenizer.encode(chunk or "", add_special_tokens=True))
            if tag is not None:
                pieces.append(self.tokenizer.encode(tag, add_special_tokens=False))
        return np.concatenate(pieces)

    def _without_dropped(self, expansion: Expansion) -> Expansion:
        ids = expansion.token_ids
        if tuple(ids[:2].tolist()) != self.dropped_start:
            return expansion
        placeholders = tuple(
            PlaceholderRange(p.item, p.offset - 1, p.length, p.embed_runs)
            for p in expansion.placeholders
        )
        return Expansion(np.delete(ids, 1), placeholders)


def _match_in_order(prompt: TokenIds, tags: Sequence[Sequence[int]]) -> list[Match]:
    """Each item's tag, earliest first; no two matches overlap, and no item matches twice."""
    item_of = {tuple(tag): item for item, tag in enumerate(tags)}
    lengths = sorted({len(tag) for tag in tags})
    starts = np.isin(prompt, list({tag[0] for tag in tags})).nonzero()[0]
    matches: list[Match] = []
    end = 0
    for at in starts.tolist():
        if at < end:
            continue
        for length in lengths:
            item = item_of.pop(tuple(prompt[at : at + length].tolist()), None)
            if item is not None:
                end = at + length
                matches.append(Match(item, at, end))
                break
    return matches
