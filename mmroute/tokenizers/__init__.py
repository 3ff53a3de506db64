"""Text to token IDs and back: one protocol, one module per format behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from mmroute.reuse.fast_paths import EncoderStats
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.tokenizers.fewest_tokens import FewestTokens
    from mmroute.tokenizers.formats.mistral import MistralChatEncoder

__all__ = ["Codec", "Tokenizer"]


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


class Tokenizer(Codec, Protocol):
    """The tokenizer of a loaded model: a `Codec`, and what the model's files say of its tokens."""

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
    def fewest_tokens(self) -> FewestTokens | None:
        """Gives a lower bound on a text's token count; None where none is known."""

    @property
    def named_tokens(self) -> tuple[str, ...]:
        """The texts of the tokens that the model's configuration names as special."""

    @property
    def template_tokens(self) -> Mapping[str, str]:
        """The text of each named token (``bos_token``), by the name that chat templates use."""

    @property
    def reads_special_tokens(self) -> bool:
        """Whether a special token that stands in a text becomes its ID."""

    @property
    def joins_pieces(self) -> bool:
        """Whether a text can be decoded by joining the texts of single tokens."""

    @property
    def chat_encoder(self) -> MistralChatEncoder | None:
        """The format's own encoder of chats, used in place of a template; None if it has none."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """The IDs of a text, and where it can be cut; see `tokenizers.encoders.Encoder`."""

    def encoder_stats(self) -> EncoderStats | None:
        """The encoder in use and its counters; None for a format with one encoder and no cache."""
