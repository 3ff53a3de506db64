"""The parts of a chat message: texts, items and names of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from mmroute.requests.items import Modality


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
