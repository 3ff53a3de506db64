"""``vocab.json`` with ``merges.txt``: byte-level BPE, split as the tokenizer's class splits it."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from mmroute.errors import ModelError, Reason, did_you_mean
from mmroute.model_files import ModelFiles
from mmroute.tokenizers.codec import Loaded
from mmroute.tokenizers.formats.fast import FastCodec, add_configured_tokens, apply_bos_rule
from mmroute.tokenizers.pipelines import PIPELINES

__all__ = ["load_vocab_and_merges"]

_CONFIG: Final = "tokenizer_config.json"
_CLASSES: Final = ("GPT2Tokenizer", "Qwen2Tokenizer")
_VERSION: Final = re.compile(r"#version\b")


def load_vocab_and_merges(files: ModelFiles) -> Loaded:
    """Load the two files, with the added tokens of tokenizer_config.json.

    The class is read from tokenizer_config.json; without one it is GPT-2's, the first of this
    format. Source: transformers 5.20.2 ``models/gpt2/tokenization_gpt2.py`` and
    ``models/qwen2/tokenization_qwen2.py``.

    Raises:
        ModelError: `missing_file`, `malformed_file`, `special_token_split`;
            `unsupported_tokenizer` for another class.
    """
    config = files.object(_CONFIG)
    declared = config.get("tokenizer_class")
    name = "GPT2Tokenizer" if declared is None else str(declared).removesuffix("Fast")
    if name not in _CLASSES:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"{files.path(_CONFIG)}: tokenizer_class {declared!r} says how the text is split, and "
            f"of the classes with vocab.json and merges.txt only {' and '.join(_CLASSES)} are "
            f"known{did_you_mean(name, _CLASSES)}. Save a tokenizer.json with transformers "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(...)`).",
        )
    backend = _bpe(files)
    if name == "Qwen2Tokenizer":
        _overwrite(backend, "qwen2")
    else:
        prefix = bool(config.get("add_prefix_space", False))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.decoder = decoders.ByteLevel()
    notes = add_configured_tokens(backend, files)
    apply_bos_rule(backend, files)
    if declared is None:
        notes.append("no tokenizer_class says how text is split: GPT-2's rule is used")
    return Loaded("vocab.json", FastCodec.of(backend), tuple(notes))


def _bpe(files: ModelFiles) -> tokenizers.Tokenizer:
    vocabulary: Any = files.json("vocab.json")
    lines = files.text("merges.txt").split("\n")
    pairs: Any = [tuple(line.split(" ")) for line in lines if line and not _VERSION.match(line)]
    try:
        return tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    except Exception as error:  # `tokenizers` raises bare Exception, and TypeError for other JSON
        raise ModelError(
            Reason.MALFORMED_FILE,
            f"{files.path('vocab.json')} and {files.path('merges.txt')} are no BPE: {error}",
        ) from error


def _overwrite(backend: tokenizers.Tokenizer, pipeline: str) -> None:
    parts = PIPELINES[pipeline].overwrites
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    declared = msgspec.json.encode({"model": empty, **parts})
    whole = tokenizers.Tokenizer.from_str(declared.decode())
    backend.normalizer, backend.pre_tokenizer = whole.normalizer, whole.pre_tokenizer
