"""Tokenizers of every kind that can be built from the package index alone."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import tiktoken
import tokenizers
from small_models import SMALL_MODELS, write_model
from tokenizers import decoders, models

from mmroute import Normalizer
from mmroute.text import TokenDecoder
from mmroute.text.pieces import Pieces

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class WithoutPieces:
    """Any tokenizer, of which nothing is known but that it decodes."""

    def __init__(self, tokenizer: TokenDecoder) -> None:
        self._tokenizer = tokenizer
        self.max_token_id = tokenizer.max_token_id

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


class BackendDecoder:
    """A `tokenizers.Tokenizer` as it is."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend
        self.max_token_id = backend.get_vocab_size() - 1

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        text: str = self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text


class TiktokenDecoder:
    """A `tiktoken.Encoding`: bytes, words of several characters, and two special tokens."""

    def __init__(self) -> None:
        words = [" the", "the", "日本", " ✓", "é", "\n\n"]
        ranks = {bytes([byte]): byte for byte in range(256)}
        ranks |= {word.encode(): 256 + i for i, word in enumerate(words)}
        self.special = {"<|a|>": len(ranks), "<|b|>": len(ranks) + 1}
        self.encoding = tiktoken.Encoding(
            "tests", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens=self.special
        )
        self.max_token_id = len(ranks) + 1
        self.pieces = Pieces(self.decode, self.max_token_id)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        skipped = self.special.values() if skip_special_tokens else ()
        return self.encoding.decode([token_id for token_id in ids if token_id not in skipped])


class Words:
    """Joins words with spaces, as the mock tokenizer of sgl-router's (smg's) tests does."""

    max_token_id = 1000
    words: Final[Mapping[int, str]] = {1: "Hello", 2: "world", 3: "test", 999: "<eos>"}

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        skipped = {999} if skip_special_tokens else set()
        return " ".join(self.words[i] for i in ids if i in self.words and i not in skipped)


def _loaded(name: str) -> TokenDecoder:
    if name not in SMALL_MODELS:
        return Normalizer.from_pretrained(name).model.tokenizer
    with tempfile.TemporaryDirectory() as directory:
        model = write_model(SMALL_MODELS[name](), Path(directory))
        return Normalizer.from_pretrained(model).model.tokenizer


def _word_piece() -> TokenDecoder:
    words = ["[UNK]", "[CLS]", "un", "##aff", "##able", ".", ",", "'", "s", "do", "n't", "##é"]
    backend = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.add_special_tokens(["[UNK]", "[CLS]"])
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return BackendDecoder(backend)


def _no_decoder() -> TokenDecoder:
    words = {word: i for i, word in enumerate(["<u>", "a", "b", "éé"])}
    return BackendDecoder(tokenizers.Tokenizer(models.WordLevel(words, unk_token="<u>")))


def _metaspace() -> TokenDecoder:
    words = {word: i for i, word in enumerate(["<u>", "▁", "▁the", "the", "▁▁", "x", "é", "▁x▁"])}
    backend = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<u>"))
    backend.decoder = decoders.Metaspace()
    return BackendDecoder(backend)


KINDS: Final[Mapping[str, Callable[[], TokenDecoder]]] = {
    "byte-level": lambda: _loaded("small-qwen2.5-vl"),
    "byte-level, BOS": lambda: _loaded("small-pixtral-hf"),
    "tekken": lambda: _loaded("pixtral-12b-2409"),
    "tiktoken": TiktokenDecoder,
    "word pieces": _word_piece,
    "no decoder": _no_decoder,
    "metaspace": _metaspace,
    "words": Words,
    "llama": lambda: _loaded("small-llava-1.5"),
    "gemma": lambda: _loaded("small-gemma-3"),
}
"""Kind -> a tokenizer. The last two decode a run of bytes as a whole, and may take text back."""

TAKE_BACK: Final = ("llama", "gemma")


@functools.cache
def tokenizer_of(kind: str, *, pieces: bool = True) -> TokenDecoder:
    """The tokenizer of a kind, made once, with or without looking up single tokens."""
    return KINDS[kind]() if pieces else WithoutPieces(tokenizer_of(kind))
