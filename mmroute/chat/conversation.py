"""The parsed messages of a request, which every renderer gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mmroute.chat.parts import MediaPart, Part
from mmroute.requests.items import Modality

if TYPE_CHECKING:
    from mmroute.chat.cache import ChatPrefix


class ParsedChat(NamedTuple):
    """The messages of a request.

    Attributes:
        messages: the messages as the engine's API accepts them, without those of `prefix`.
        contents: the parts of each of these messages, in the same order.
        media: the parts of all messages that stand for an item, by modality, in their order.
        prefix: the leading messages that the cache knows; None if the cache was not used.
    """

    messages: Sequence[dict[str, Any]]
    contents: Sequence[Sequence[Part]]
    media: Mapping[Modality, Sequence[MediaPart]]
    prefix: ChatPrefix | None = None
