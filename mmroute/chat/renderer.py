"""The protocol of chat renderers, and the messages of a request as they read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from mmroute.chat.conversation import MediaPart, Part, Rendered
from mmroute.errors import InexactError, Reason
from mmroute.requests.items import Items, Modality
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.chat.cache import ChatCache, ChatPrefix
    from mmroute.chat.template import ChatTemplate


class ParsedChat(NamedTuple):
    """The messages of a request."""

    # The messages as the engine's API accepts them, without those of `prefix`.
    messages: Sequence[dict[str, Any]]
    contents: Sequence[Sequence[Part]]  # the parts of each of these messages, in the same order
    # The parts of all messages that stand for an item, by modality, in their order.
    media: Mapping[Modality, Sequence[MediaPart]]
    # The leading messages that the cache knows; None if the cache was not used.
    prefix: ChatPrefix | None = None


class Chat(Protocol):
    """Renders conversations of one model. Immutable and safe to share."""

    __slots__ = ()
    # Whether the engine drops the items of a chat, and renders only its texts.
    ignores_items: ClassVar[bool] = False

    @property
    def content_format(self) -> str:
        """The form of message contents for the template: ``openai`` (parts) or ``string``."""
        return "string"

    @property
    def origins(self) -> Mapping[str, str]:
        """The values that decide how chats are rendered, each with the place it comes from."""

    @property
    def templates(self) -> Mapping[str, ChatTemplate] | None:
        """The templates `default` and (with tools) `tool_use`; None for encoders of chats."""
        return {}

    def with_template(self, source: str, origin: str) -> Chat:
        """The same renderer with another template for all requests."""
        return self

    def with_content_format(self, content_format: str) -> Chat:
        """The same renderer, whose templates get message contents in another form."""
        return self

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        """Check the messages of a request as the engine's API does, and parse them."""

    def render(self, chat: ParsedChat, items: Items, request: Request) -> Rendered:
        """Render a conversation."""


def check_api_fields(known: frozenset[str], request: Request) -> None:
    """Refuse fields of the engine's API that a renderer reads, and mmroute does not."""
    if not request.api_fields:
        return
    found = sorted(known & request.api_fields.keys())
    if "tool_choice" in found and (
        not request.tools or request.api_fields["tool_choice"] == "auto"
    ):
        found.remove("tool_choice")  # what the engine takes without the field
    if found:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"{', '.join(found)}: the engine's token IDs depend on it, and it is not covered",
        )
