"""``vocab.json`` with ``merges.txt``: byte-level BPE, split as the tokenizer's class splits it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import tokenizers
from tokenizers import models, processors

from mmroute.errors import ModelError, Reason, did_you_mean, malformed
from mmroute.model_directory import JsonValue, ModelFiles
from mmroute.text.codec import Loaded
from mmroute.text.pieces import pieces_of
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer, joins_pieces
from mmroute.tokenizers.formats.special_tokens import read_special_tokens
from mmroute.tokenizers.pipelines import PIPELINES, Pipeline

_CONFIG: Final = "tokenizer_config.json"
_CLASSES: Final = ("GPT2Tokenizer", "Qwen2Tokenizer")
_DECODER: Final[JsonValue] = {"type": "ByteLevel"}
_VERSION: Final = re.compile(r"#version\b")


def load_vocab_and_merges(files: ModelFiles) -> Loaded:
    """Load the two files, with the added tokens of tokenizer_config.json.

    The class is that of tokenizer_config.json, or GPT-2's if the file names none.
    Source: transformers ``models/gpt2/tokenization_gpt2.py`` and
    ``models/qwen2/tokenization_qwen2.py``.
    """
    config = files.object(_CONFIG)
    declared = config.get("tokenizer_class")
    name = "GPT2Tokenizer" if declared is None else str(declared).removesuffix("Fast")
    if name not in _CLASSES:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"{files.path(_CONFIG)}: tokenizer_class {declared!r} decides how the text is split; "
            f"of the classes with vocab.json and merges.txt mmroute knows {' and '.join(_CLASSES)} "
            f"only{did_you_mean(name, _CLASSES)}. Save a tokenizer.json with transformers "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(...)`).",
        )
    backend = _bpe(files)
    special = read_special_tokens(files)
    notes = [
        f"{text!r} has no ID in any file: it got the next free one, as transformers does"
        for text in special.texts
        if backend.token_to_id(text) is None
        and text not in {token.content for _, token in special.with_ids}
    ]
    _write(backend, PIPELINES[name], config)
    special.add_to(backend)
    special.check_ids(backend, files)
    if {"add_bos_token", "add_eos_token"} & config.keys():
        bos = special.names.get("bos_token") if config.get("add_bos_token") else None
        eos = special.names.get("eos_token") if config.get("add_eos_token") else None
        _put_around(backend, bos, eos)
    if declared is None:
        notes.append("no tokenizer_class says how text is split: GPT-2's rule is used")
    tokenizer = HfTokenizer(backend, joins_pieces=joins_pieces(_DECODER))
    return Loaded("vocab.json", tokenizer, tuple(notes), pieces=pieces_of(tokenizer))


def _vocabulary(files: ModelFiles) -> Any:
    """The vocabulary, parsed again: `ModelFiles` does not show that the file has a token twice."""
    path = files.path("vocab.json")

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        vocabulary = dict(pairs)
        if len(vocabulary) < len(pairs):
            raise malformed(f"{path} has a token twice.")
        return vocabulary

    files.json("vocab.json")  # raises a clear error for a file that is not JSON
    text = files.text("vocab.json").removeprefix("\ufeff")
    vocabulary = json.loads(text, object_pairs_hook=object_of)
    ids: dict[int, str] = {}
    for token, token_id in vocabulary.items() if isinstance(vocabulary, dict) else ():
        if type(token_id) is int and ids.setdefault(token_id, token) != token:
            raise malformed(
                f"{path} gives the ID {token_id} to {ids[token_id]!r} and to {token!r}."
            )
    return vocabulary


def _bpe(files: ModelFiles) -> tokenizers.Tokenizer:
    vocabulary = _vocabulary(files)
    lines = files.text("merges.txt").split("\n")
    pairs: Any = [tuple(line.split(" ")) for line in lines if line and not _VERSION.match(line)]
    try:
        return tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    except Exception as error:  # `tokenizers` raises bare Exception, and TypeError for other JSON
        raise malformed(
            f"{files.path('vocab.json')} and {files.path('merges.txt')} do not make a BPE: {error}"
        ) from error


def _write(
    backend: tokenizers.Tokenizer, pipeline: Pipeline, config: Mapping[str, JsonValue]
) -> None:
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    declared = msgspec.json.encode({"model": empty, **pipeline.parts(config)})
    declared_backend = tokenizers.Tokenizer.from_str(declared.decode())
    if declared_backend.normalizer is not None:
        backend.normalizer = declared_backend.normalizer
    backend.pre_tokenizer, backend.decoder = (
        declared_backend.pre_tokenizer,
        declared_backend.decoder,
    )


def _put_around(backend: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """Have these tokens of the vocabulary added to a sequence, and nothing else."""
    used = {name: text for name, text in (("bos", bos), ("eos", eos)) if text is not None}
    # By names of their own: the library reads a colon in a token's text as its own syntax.
    backend.post_processor = processors.TemplateProcessing(
        single=[*["bos"] * ("bos" in used), "$A", *["eos"] * ("eos" in used)],
        special_tokens=[
            {"id": name, "ids": [backend.token_to_id(text)], "tokens": [text]}
            for name, text in used.items()
        ],
    )
