"""Text to token IDs and back: one small protocol, one module per engine behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mmroute.fast_paths import EncoderStats
from mmroute.geometry import TokenIds

__all__ = ["Tokenizer"]


class Tokenizer(Protocol):
    """What the request path needs of a tokenizer. Its answers never change; safe to share."""

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a sequence, if the model has one."""

    @property
    def max_token_id(self) -> int:
        """The largest ID of the vocabulary, added tokens included."""

    @property
    def max_chars_per_token(self) -> int:
        """The length of the longest vocabulary entry, in characters."""

    @property
    def special_tokens(self) -> Sequence[str]:
        """The texts of the tokens the model names as special."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token IDs of a text, shape (n,).

        Args:
            text: any text; special tokens in it become their IDs where the engine does so.
            add_special_tokens: also add what the tokenizer puts around a sequence (BOS).

        Raises:
            ValueError: the text is not encodable (a lone surrogate).
        """

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token IDs, special tokens as they are written, or left out."""

    def token_id(self, token: str) -> int | None:
        """The ID of one vocabulary entry, or None."""

    def encoder_stats(self) -> EncoderStats | None:
        """Who encodes, and counters; None if there is nothing to choose or to count."""
