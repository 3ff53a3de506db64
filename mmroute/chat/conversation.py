"""The parts of a chat's messages, and what a chat is rendered to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mmroute.requests.items import Modality
from mmroute.token_ids import TokenIds


class TextPart(NamedTuple):
    """A text."""

    text: str  # the text as it stands in the message
    extra: Mapping[str, Any]  # the keys of the part that reach the template as they are


class MediaPart(NamedTuple):
    """An image, a video or audio."""

    modality: Modality
    number: int  # its number among the items of its modality in this request, counted from 1
    url: str | None  # its link or data URL; None if it has neither
    uuid: str | None  # the client's own name for it; None if it sent none
    extra: Mapping[str, Any]  # the keys of the part that reach the template as they are
    source: Mapping[str, Any]  # the part as the client sent it


class ToolReference(NamedTuple):
    """A reference to a tool by its name."""

    name: Any


Part: TypeAlias = TextPart | MediaPart | ToolReference


class Continued(NamedTuple):
    """The text of a chat after a prefix whose token IDs are known."""

    text: str  # the text to encode
    characters: int  # the length of the text before it
    # Returns the token IDs of the whole chat. Its arguments are the IDs of `text` and the places
    # where `text` can be cut; see `mmroute.tokenizers.encoders.Encoder.encode_cut`.
    prompt: Callable[[TokenIds, Sequence[tuple[int, int]]], TokenIds]


Rendered: TypeAlias = "str | Continued | TokenIds"
"""A rendered chat: its text, or the text after a known prefix, or its token IDs."""
