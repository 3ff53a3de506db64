"""The parsed messages of a request, which every renderer gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mmroute.chat.parts import MediaPart, Part
from mmroute.requests.items import Modality

if TYPE_CHECKING:
    from mmroute.chat.cache import ChatPrefix


class ParsedChat(NamedTuple):
    """The messages of a request."""

    # The messages as the engine's API accepts them, without those of `prefix`.
    messages: Sequence[dict[str, Any]]
    contents: Sequence[Sequence[Part]]  # the parts of each of these messages, in the same order
    # The parts of all messages that stand for an item, by modality, in their order.
    media: Mapping[Modality, Sequence[MediaPart]]
    # The leading messages that the cache knows; None if the cache was not used.
    prefix: ChatPrefix | None = None
