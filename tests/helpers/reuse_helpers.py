"""Small tokenizers, hostile texts, and caches that keep short texts as they keep long ones."""

from __future__ import annotations

import contextlib
import functools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import tokenizers
from tokenizers import AddedToken, models

from mmroute import Normalizer
from mmroute.reuse import prefix_cache
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.encoders import CachingEncoder, ReferenceEncoder, boundary_tokens
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

# Two pipelines that add to the start of a piece, one that does not, one with tokens that strip.
NAMES: Final = ("small-qwen2-vl", "small-llava-1.5", "small-gemma-3", "small-phi-3-vision")
ALPHABET: Final = "<>ab \u2581AB"
HOSTILE: Final = (
    " ", "   ", "\n", "\n\n\n", "\t ", "\r\n", "\xa0", "\u2003", "\u200b", "\x00", "\x1c", "\x85",
    "e\u0301", "\u0301", "\u0338", "\u1e9b\u0323", "ﬁ", "Å", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "中文",
    "한국어", "हिन्दी", "'s", "'LL", "12345", "½", "...", "<|", "|>", "<",
    ">", "</", "[", "image", "the picture", "İ",
)  # fmt: skip


@contextlib.contextmanager
def prefixes_from(first: int) -> Iterator[None]:
    """Let a `PrefixCache` know strings from so many characters or bytes on, not from 1024."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_cache, "_FIRST", first)
        prefix_cache._lengths.cache_clear()
        yield
    prefix_cache._lengths.cache_clear()


def tiny_tokenizer(
    added: Iterable[AddedToken] = (),
    *,
    normalizer: Any = None,
    pre_tokenizer: Any = None,
    dropout: float | None = None,
) -> tokenizers.Tokenizer:
    """Letters and two merges: what stands together has other IDs than what was cut apart."""
    vocabulary = {letter: number for number, letter in enumerate([*ALPHABET, "ab", "  "])}
    merges = [("a", "b"), (" ", " ")]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, dropout=dropout))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    for token in added:  # one by one, so that each has the ID of its place
        tokenizer.add_tokens([token])
    return tokenizer


def hostile_texts(
    draw: random.Random, tokens: Iterable[str], *, max_pieces: int = 12
) -> Iterator[str]:
    """Tokens inside text, what only resembles them, and what tokenizers differ in; no end."""
    known = sorted(tokens)
    while True:
        pieces = range(draw.randint(0, max_pieces))
        yield "".join([_hostile_piece(draw, known) for _ in pieces])


def _hostile_piece(draw: random.Random, tokens: Sequence[str]) -> str:
    match draw.randrange(4):
        case 0:
            return draw.choice(tokens)
        case 1:
            token = draw.choice(tokens)
            start, stop = sorted(draw.choices(range(len(token) + 1), k=2))
            return token[start:stop]
        case 2:
            return draw.choice(HOSTILE)
    planes = draw.choice((0x250, 0x10000, 0x110000))
    some = [chr(draw.randrange(planes)) for _ in range(draw.randint(0, 8))]
    return "".join([character for character in some if not "\ud800" <= character <= "\udfff"])


def plainly(tokenizer: tokenizers.Tokenizer, text: str, *, special: bool = False) -> list[int]:
    """The IDs of the reference."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
    return ids


def token_id(tokenizer: tokenizers.Tokenizer, text: str) -> int:
    """The ID of a token that is there."""
    number: int | None = tokenizer.token_to_id(text)
    assert number is not None, text
    return number


def declared(tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    return parts


def boundaries_of(tokenizer: tokenizers.Tokenizer) -> dict[int, str]:
    return boundary_tokens(tokenizer, declared(tokenizer))


class Counting(ReferenceEncoder):
    """The reference, and the texts that it was given."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        super().__init__(backend, "by choice")
        self.texts: list[str] = []

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        self.texts.append(text)
        return super().encode(text, add_special_tokens=add_special_tokens)


def reusing(
    tokenizer: tokenizers.Tokenizer,
    boundaries: Mapping[int, str] | None = None,
    *,
    max_bytes: int = 1 << 20,
    min_chars: int = 1,
) -> tuple[CachingEncoder, Counting]:
    """An encoder that keeps texts, and the one behind it."""
    encoder = Counting(tokenizer)
    chosen = boundaries_of(tokenizer) if boundaries is None else boundaries
    reuse = CachingEncoder(
        encoder,
        chosen,
        max_bytes=max_bytes,
        min_chars=min_chars,
    )
    return reuse, encoder


def encoded(encoder: CachingEncoder | ReferenceEncoder, text: str) -> list[int]:
    ids: list[int] = encoder.encode(text, add_special_tokens=False).tolist()
    return ids


@functools.cache
def backend_of(directory: Path) -> tokenizers.Tokenizer:
    """The reference of a model, all added tokens in it."""
    tokenizer = Normalizer.from_pretrained(directory).model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    return tokenizer.backend
