"""Text to token IDs and back: one protocol, one module per format behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from mmroute.geometry import TokenIds
from mmroute.reuse.fast_paths import EncoderStats
from mmroute.tokenizers.codec import Codec

if TYPE_CHECKING:
    from mmroute.tokenizers.formats.mistral_chat import MistralChatEncoder
    from mmroute.tokenizers.pieces import Pieces

__all__ = ["Codec", "Tokenizer"]


class Tokenizer(Codec, Protocol):
    """The tokenizer of a model whose requests are answered: a `Codec`, and what a model knows."""

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
    def max_letters_per_token(self) -> int | None:
        """The most ASCII letters that one token stands for; None where that is not known.

        Whatever else is in a text, each of its letters is in exactly one token, except that each
        character beyond ASCII may take one letter into it.
        """

    @property
    def named_tokens(self) -> tuple[str, ...]:
        """The texts of the tokens that the model's configuration names as special."""

    @property
    def template_tokens(self) -> Mapping[str, str]:
        """``bos_token`` and the like, by the names that chat templates write them with."""

    @property
    def reads_special_tokens(self) -> bool:
        """Whether a special token that stands in a text becomes its ID."""

    @property
    def pieces(self) -> Pieces | None:
        """The texts of single tokens, where the decoder joins such; for streams."""

    @property
    def chat_encoder(self) -> MistralChatEncoder | None:
        """Encodes chats without a template, where the format has its own way to do so."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """The IDs of a text, and where it can be cut; see `tokenizers.encoders.Encoder`.

        Raises:
            ValueError: as `encode`.
        """

    def encoder_stats(self) -> EncoderStats | None:
        """Who encodes, and counters; None if there is nothing to choose or to count."""
