"""The messages of a request, taken apart: what every renderer starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mmroute.requests.items import Modality

if TYPE_CHECKING:
    from mmroute.chat.reuse import Beginning

__all__ = ["MediaPart", "ParsedChat", "Part", "TextPart", "ToolReference"]


class TextPart(NamedTuple):
    """A text.

    Attributes:
        text: as it stands there.
        extra: keys of the part that reach the template as they are.
    """

    text: str
    extra: Mapping[str, Any]


class MediaPart(NamedTuple):
    """An image, a video or audio.

    Attributes:
        modality: which of them.
        number: among those of its modality in this request, counted from 1.
        url: its link or data URL, if it has one.
        uuid: the client's own name for it, if it has one.
        extra: keys of the part that reach the template as they are.
        source: the part as the client sent it.
    """

    modality: Modality
    number: int
    url: str | None
    uuid: str | None
    extra: Mapping[str, Any]
    source: Mapping[str, Any]


class ToolReference(NamedTuple):
    """A tool, by its name."""

    name: Any


Part: TypeAlias = TextPart | MediaPart | ToolReference


class ParsedChat(NamedTuple):
    """The messages of a request.

    Attributes:
        messages: as the engine's API accepts them; without those at the beginning that are known.
        contents: the parts of each of these.
        media: the parts of all messages that stand for an item, by modality, in their order.
        beginning: what is known of the messages before; None if nothing was asked.
    """

    messages: Sequence[dict[str, Any]]
    contents: Sequence[Sequence[Part]]
    media: Mapping[Modality, Sequence[MediaPart]]
    beginning: Beginning | None = None
