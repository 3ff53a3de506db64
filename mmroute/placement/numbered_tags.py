"""Phi-3-vision: ``<|image_1|>`` is ordinary text, and a prompt with images is encoded anew.

With at least one image the engine drops a leading BOS, decodes the prompt, removes the space after
each special token, and splits the text at the tags. It encodes each chunk with a BOS of its own and
each tag without one. So tags may stand in any order. Text that decoding changes stays changed.
Source: vLLM ``model_executor/models/phi3v.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import numpy as np

from mmroute.placement.expansion import Expansion, Insertion
from mmroute.placement.targets import Targets
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

_TAG: Final = re.compile(r"<\|image_\d+\|>")


@dataclass(frozen=True, slots=True)
class NumberedTags:
    """Placement by numbered tags in the text."""

    tokenizer: Tokenizer
    image: int  # the token of an image's features
    # Two IDs; if the expanded prompt begins with them, the engine drops the second.
    dropped_start: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        image_token = self.tokenizer.decode([self.image])
        start = self.tokenizer.encode(f"<s> {image_token}", add_special_tokens=False)
        object.__setattr__(self, "dropped_start", tuple(start.tolist()))

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        prompt = self._encode_anew(ids.tolist())
        return self._without_dropped(Targets(self.tokenizer).expand(prompt, insertions))

    def _encode_anew(self, ids: list[int]) -> TokenIds:
        if ids and ids[0] == self.tokenizer.bos_token_id:
            ids = ids[1:]
        text = self.tokenizer.decode(ids)
        for special in self.tokenizer.named_tokens:
            text = text.replace(f"{special} ", special)
        parts: list[TokenIds] = []
        for chunk, tag in zip_longest(_TAG.split(text), _TAG.findall(text), fillvalue=None):
            parts.append(self.tokenizer.encode(chunk or "", add_special_tokens=True))
            if tag is not None:
                parts.append(self.tokenizer.encode(tag, add_special_tokens=False))
        return np.concatenate(parts)

    def _without_dropped(self, expansion: Expansion) -> Expansion:
        ids = expansion.token_ids
        if tuple(ids[:2].tolist()) != self.dropped_start:
            return expansion
        placeholders = tuple(
            placed._replace(offset=placed.offset - 1) for placed in expansion.placeholders
        )
        return Expansion(np.delete(ids, 1), placeholders)
