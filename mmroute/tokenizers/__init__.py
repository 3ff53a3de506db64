"""Text to token IDs and back: one protocol, one module per format behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from mmroute.reuse.fast_paths import EncoderStats
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.codec import Codec

if TYPE_CHECKING:
    from mmroute.tokenizers.fewest_tokens import FewestTokens
    from mmroute.tokenizers.formats.mistral_chat import MistralChatEncoder
    from mmroute.tokenizers.pieces import Pieces

__all__ = ["Codec", "Tokenizer"]


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
    def pieces(self) -> Pieces | None:
        """The texts of single tokens, to decode streams; None if the decoder does not join them."""

    @property
    def chat_encoder(self) -> MistralChatEncoder | None:
        """The format's own encoder of chats, used in place of a template; None if it has none."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """The IDs of a text, and where it can be cut; see `tokenizers.encoders.Encoder`."""

    def encoder_stats(self) -> EncoderStats | None:
        """The encoder in use and its counters; None for a format with one encoder and no cache."""
