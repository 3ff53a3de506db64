"""The interface of a tokenizer of any format: text to token IDs and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mmroute.token_ids import MAX_TOKEN_ID, TokenIds
from mmroute.tokenizers.pieces import Pieces


class Codec(Protocol):
    """Text to token IDs and back. Its answers never change; safe to share between threads."""

    @property
    def vocab_size(self) -> int:
        """The largest ID plus 1."""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The tokens that `decode` leaves out with `skip_special_tokens`, and their IDs."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token IDs of a text, shape (n,), uint32."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token IDs that are below `vocab_size`."""

    def token_id(self, token: str) -> int | None:
        """The ID of a vocabulary entry as the format writes it, or None."""

    def token(self, token_id: int) -> str | None:
        """The vocabulary entry of an ID as the format writes it, or None."""

    def offsets(self, text: str, *, add_special_tokens: bool) -> list[tuple[int, int]] | None:
        """The start and end of each token in the text, in characters; None if not known."""


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
