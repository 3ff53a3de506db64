"""Texts that tell apart the ways in which a tokenizer can be built from its file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import JsonValue, ModelFiles, find_model
from mmroute.tokenizers.pipelines import PIPELINES

_MAX_PIECES: Final = 8


def telling_texts(model: ResolvedModel) -> Iterator[str]:
    """Texts for which tokenizer classes differ: their default tokens, and unmerged pieces."""
    yield " ".join(sorted({text for p in PIPELINES.values() for text in p.defaults.values()}))
    files = _files(model)
    if files is None:
        return
    unmerged = _unmerged(files.object("tokenizer.json").get("model"))
    texts = map(model.tokenizer.decode, ([token_id] for token_id in unmerged))
    plain = (text for text in texts if len(text.strip()) > 1 and text.isprintable())
    if telling := list(itertools.islice(plain, _MAX_PIECES)):
        yield "\n".join(telling)


def _unmerged(bpe: JsonValue) -> list[int]:
    """The IDs of pieces that no merge gives, which only a BPE with ignore_merges finds."""
    parsed = msgspec.json.decode(msgspec.json.encode(bpe))
    vocabulary, merges = (
        (parsed.get("vocab"), parsed.get("merges")) if isinstance(parsed, dict) else ({}, [])
    )
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        return []
    pairs = (pair.split(" ", 1) if isinstance(pair, str) else pair for pair in merges)
    merged = {"".join(map(str, pair)) for pair in pairs if isinstance(pair, list)}
    return [i for piece, i in vocabulary.items() if piece not in merged and isinstance(i, int)]


def _files(model: ResolvedModel) -> ModelFiles | None:
    """The model's directory, if it has a tokenizer.json; None for a name on the hub."""
    if not Path(model.name).is_dir() or model.tokenizer.chat_encoder is not None:
        return None
    files = find_model(model.name)
    return files if files.has("tokenizer.json") else None
