"""What a tokenizer of any format offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mmroute.geometry import TokenIds
from mmroute.tokenizers.pieces import Pieces

__all__ = ["Codec", "Loaded"]


@runtime_checkable
class Codec(Protocol):
    """Text to token IDs and back. Its answers never change; safe to share between threads.

    A tokenizer of one's own needs these and nothing else (`mmroute.load_tokenizer`).
    """

    @property
    def vocab_size(self) -> int:
        """The largest ID plus 1."""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The tokens that `decode` leaves out where it is asked to, and their IDs."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token IDs of a text, shape (n,), uint32.

        Args:
            text: any text; special tokens in it become their IDs where the format does so.
            add_special_tokens: also add what the tokenizer puts around a sequence (BOS).

        Raises:
            ValueError: the text is not encodable (a lone surrogate).
        """

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token IDs that are below `vocab_size`."""

    def token_id(self, token: str) -> int | None:
        """The ID of a vocabulary entry as the format writes it, or None."""

    def token(self, token_id: int) -> str | None:
        """The vocabulary entry of an ID as the format writes it, or None."""

    def offsets(self, text: str, *, add_special_tokens: bool) -> list[tuple[int, int]] | None:
        """Where in the text each token stands, in characters; None if the engine cannot say."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a format makes of its files.

    Attributes:
        format: its name.
        codec: the tokenizer.
        notes: whose IDs these are, and what is not promised.
        chat_template: the template that the file itself carries, if it does.
        pieces: the texts of single tokens, where its decoder joins such; for streams.
    """

    format: str
    codec: Codec
    notes: tuple[str, ...] = ()
    chat_template: str | None = None
    pieces: Pieces | None = None
