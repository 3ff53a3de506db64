"""Tokenizers of any format, as `load_tokenizer` gets them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmroute.text.pieces import Pieces
from mmroute.token_ids import MAX_TOKEN_ID, TokenIds
from mmroute.tokenizers import Codec


@dataclass(frozen=True, slots=True)
class OwnCodec:
    """A caller's own tokenizer as a `Codec`. Members that it lacks answer None or a default."""

    own: Any  # the caller's object. Its `encode(text)` returns IDs, its `decode(ids)` a text.

    @property
    def vocab_size(self) -> int:
        size: int = getattr(self.own, "vocab_size", MAX_TOKEN_ID + 1)
        return size

    @property
    def special_tokens(self) -> Mapping[str, int]:
        return getattr(self.own, "special_tokens", {})

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        text.encode()  # raises for a lone surrogate, which a tokenizer could silently replace
        options = _accepted(self.own.encode, add_special_tokens=add_special_tokens)
        return np.asarray(self.own.encode(text, **options), np.uint32)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        options = _accepted(self.own.decode, skip_special_tokens=skip_special_tokens)
        text: str = self.own.decode(ids, **options)
        return text

    def token_id(self, token: str) -> int | None:
        return self.own.token_id(token) if hasattr(self.own, "token_id") else None

    def token(self, token_id: int) -> str | None:
        return self.own.token(token_id) if hasattr(self.own, "token") else None

    def offsets(self, text: str, *, add_special_tokens: bool) -> list[tuple[int, int]] | None:
        if not hasattr(self.own, "offsets"):
            return None
        offsets: list[tuple[int, int]] | None = self.own.offsets(
            text, add_special_tokens=add_special_tokens
        )
        return offsets


def _accepted(function: Callable[..., Any], **options: bool) -> dict[str, bool]:
    known = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in known}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tokenizer that one of the formats has loaded from its files."""

    format: str  # the name of the format
    codec: Codec  # the tokenizer
    # Sentences that say which engine has these IDs, and what is not promised.
    notes: tuple[str, ...] = ()
    # The chat template in the tokenizer's own file; None if it has none.
    chat_template: str | None = None
    # The texts of single tokens, for decoding streams; None if the decoder does not join them.
    pieces: Pieces | None = None
