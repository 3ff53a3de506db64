"""Texts that tell apart the ways in which a tokenizer can be built from its file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mmroute.model.resolved import ResolvedModel
from mmroute.tokenizers.pipelines import PIPELINES

_MAX_PIECES: Final = 8


def telling_texts(model: ResolvedModel) -> Iterator[str]:
    """Texts for which tokenizer classes differ: their default tokens, and unmerged pieces."""
    yield " ".join(sorted({text for p in PIPELINES.values() for text in p.defaults.values()}))
    file = Path(model.name) / "tokenizer.json"  # not of a name on the hub
    if model.tokenizer.chat_encoder is not None or not file.is_file():
        return
    bpe = json.loads(file.read_text(encoding="utf-8")).get("model") or {}
    texts = map(model.tokenizer.decode, ([token_id] for token_id in _unmerged(bpe)))
    plain = (text for text in texts if len(text.strip()) > 1 and text.isprintable())
    if telling := list(itertools.islice(plain, _MAX_PIECES)):
        yield "\n".join(telling)


def _unmerged(bpe: dict[str, Any]) -> list[int]:
    """The IDs of pieces that no merge gives, which only a BPE with ignore_merges finds."""
    vocabulary, merges = bpe.get("vocab"), bpe.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        return []  # of another kind of model
    pairs = (pair.split(" ", 1) if isinstance(pair, str) else pair for pair in merges)
    merged = {"".join(pair) for pair in pairs}
    return [number for piece, number in vocabulary.items() if piece not in merged]
