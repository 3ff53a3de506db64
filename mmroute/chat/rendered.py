"""The result of rendering a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from mmroute.token_ids import TokenIds


class Continued(NamedTuple):
    """The text of a chat after a prefix whose token IDs are known."""

    text: str  # the text to encode
    characters: int  # the length of the text before it
    # Returns the token IDs of the whole chat. Its arguments are the IDs of `text` and the places
    # where `text` can be cut; see `mmroute.tokenizers.encoders.Encoder.encode_cut`.
    prompt: Callable[[TokenIds, Sequence[tuple[int, int]]], TokenIds]


Rendered: TypeAlias = "str | Continued | TokenIds"
"""A rendered chat: its text, or the text after a known prefix, or its token IDs."""
