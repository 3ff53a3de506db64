"""What every format of tokenizers is compared by, and directories of some."""

from __future__ import annotations

import functools
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mistral_common
import numpy as np
from hostile_corpus import hostile_texts
from small_vocabularies import write_ranks

from mmroute import load_tokenizer
from mmroute.text.loaded_tokenizer import LoadedTokenizer

MISTRAL = Path(mistral_common.__file__).parent / "data"
SPM = MISTRAL / "tokenizer.model.v1"
LONGEST = 10_000  # characters; beyond 4,096 a text is encoded by another call
Encode = Callable[[str], Iterable[int]]


def same_ids(
    ours: LoadedTokenizer, reference: Encode, *, special: bool = False, every: int = 1
) -> None:
    """Compare the IDs of one text in so many of the corpus.

    With special tokens one in ten will do: what is put around a text is the same around each.
    """
    texts = hostile_texts(list(ours.special_tokens))
    for text in itertools.islice(texts, None, None, 10 if special else every):
        shown = text[:LONGEST]
        ids = ours.encode(shown, add_special_tokens=special)
        assert ids.dtype == np.uint32
        assert ids.tolist() == list(reference(shown)), text[:80]


def same_texts(ours: LoadedTokenizer, reference: Callable[[list[int]], str], **how: bool) -> None:
    chosen = random.Random(7)
    for length in (0, 1, 1, 2, 3, 5, 8, 13) * 10:
        ids = [chosen.randrange(ours.vocab_size) for _ in range(length)]
        assert ours.decode(ids, **how) == reference(ids), ids


def spm_directory(root: Path, config: dict[str, Any]) -> Path:
    root.mkdir(exist_ok=True)
    shutil.copy(SPM, root / "tokenizer.model")
    (root / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return root


def rank_directory(root: Path, config: dict[str, Any] | None = None) -> Path:
    write_ranks(root / "small.tiktoken")
    if config is not None:
        (root / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return root


@functools.cache
def tekken() -> LoadedTokenizer:
    return load_tokenizer(MISTRAL / "tekken_240911.json")
