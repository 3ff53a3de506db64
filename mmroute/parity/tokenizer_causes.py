"""Differences that lie in how the tokenizer was built from its file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.errors import InexactError, ModelError
from mmroute.geometry import TokenIds
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import JsonValue, ModelFiles, find_model
from mmroute.parity.causes import Cause, Diagnosis, Difference
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.formats.tokenizer_json import builds
from mmroute.tokenizers.pipelines import PIPELINES

__all__ = ["telling_texts", "tokenizer_class"]

_MOST_PIECES: Final = 8
_MOST_TOKENIZERS: Final = 8  # which may have 100 MB each


def tokenizer_class(difference: Difference) -> Diagnosis | None:
    """The same tokenizer.json, built by other rules, gives the oracle's answer."""
    files = _files(difference.model)
    if files is None:
        return None
    ours, *others = builds(files, difference.model.family.tokenizer.pipelines)
    if not _gives(difference, ours[0], difference.ours):
        return None  # what is wrong with it is nothing that a class does
    for how, _ in others:
        if _gives(difference, how, difference.theirs):
            return difference.found(
                Cause.TOKENIZER_CLASS,
                f"The oracle's tokenizer is built {how}. Which class does the engine take for "
                "config.json's model_type and tokenizer_config.json's tokenizer_class, and does "
                "[tokenizer] pipelines of the family spec say otherwise?",
            )
    return None


def _gives(difference: Difference, how: str, wanted: TokenIds) -> bool:
    model = difference.model
    try:
        tokenizer = _built(model.name, tuple(model.family.tokenizer.pipelines.items()), how)
        ids = answer(replace(model, tokenizer=tokenizer), difference.request).token_ids
    except (ModelError, InexactError):
        return False
    return np.array_equal(ids, wanted)


def telling_texts(model: ResolvedModel) -> Iterator[str]:
    """Texts to which tokenizer classes give other IDs: their default tokens, unmerged pieces."""
    yield " ".join(sorted({text for p in PIPELINES.values() for text in p.defaults.values()}))
    files = _files(model)
    if files is None:
        return
    unmerged = _unmerged(files.object("tokenizer.json").get("model"))
    texts = map(model.tokenizer.decode, ([token_id] for token_id in unmerged))
    plain = (text for text in texts if len(text.strip()) > 1 and text.isprintable())
    if telling := list(itertools.islice(plain, _MOST_PIECES)):
        yield "\n".join(telling)


def _unmerged(bpe: JsonValue) -> list[int]:
    """The IDs of pieces that no merge gives: only a BPE with ignore_merges finds them."""
    vocabulary, merges = (
        (bpe.get("vocab"), bpe.get("merges")) if isinstance(bpe, dict) else ({}, [])
    )
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        return []
    pairs = (pair.split(" ", 1) if isinstance(pair, str) else pair for pair in merges)
    merged = {"".join(map(str, pair)) for pair in pairs if isinstance(pair, list)}
    return [i for piece, i in vocabulary.items() if piece not in merged and isinstance(i, int)]


def _files(model: ResolvedModel) -> ModelFiles | None:
    """The model's directory, if it has a tokenizer.json; a hub name would have to be fetched."""
    if not Path(model.name).is_dir() or model.tokenizer.chat_encoder is not None:
        return None
    files = find_model(model.name)
    return files if files.has("tokenizer.json") else None


@lru_cache(_MOST_TOKENIZERS)
def _built(name: str, pipelines: tuple[tuple[str, str], ...], how: str) -> Tokenizer:
    return dict(builds(find_model(name), dict(pipelines)))[how]()
