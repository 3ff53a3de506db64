"""The parts of a chat message: texts, items and names of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from mmroute.requests.items import Modality


class TextPart(NamedTuple):
    """A text.

    Attributes:
        text: the text as it stands in the message.
        extra: the keys of the part that reach the template as they are.
    """

    text: str
    extra: Mapping[str, Any]


class MediaPart(NamedTuple):
    """An image, a video or audio.

    Attributes:
        modality: the modality of the item.
        number: its number among the items of its modality in this request, counted from 1.
        url: its link or data URL; None if it has neither.
        uuid: the client's own name for it; None if it sent none.
        extra: the keys of the part that reach the template as they are.
        source: the part as the client sent it.
    """

    modality: Modality
    number: int
    url: str | None
    uuid: str | None
    extra: Mapping[str, Any]
    source: Mapping[str, Any]


class ToolReference(NamedTuple):
    """A reference to a tool by its name."""

    name: Any


Part: TypeAlias = TextPart | MediaPart | ToolReference
