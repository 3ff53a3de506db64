"""What a renderer gives for a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from mmroute.geometry import TokenIds


class Continued(NamedTuple):
    """The text of a chat behind a prefix whose token IDs are known.

    Attributes:
        text: the text to encode.
        characters: the length of the text before it.
        prompt: gives the token IDs of the whole chat, of the IDs of `text` and of the places where
            it can be cut; see `mmroute.tokenizers.encoders.Encoder.encode_cut`.
    """

    text: str
    characters: int
    prompt: Callable[[TokenIds, Sequence[tuple[int, int]]], TokenIds]


Rendered: TypeAlias = "str | Continued | TokenIds"
"""A rendered chat: its text, the rest of it behind a known prefix, or its token IDs."""
