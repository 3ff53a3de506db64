"""What all chat renderers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from mmroute.chat.conversation import ParsedChat
from mmroute.errors import InexactError, Reason
from mmroute.geometry import TokenIds
from mmroute.requests.items import Items
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.chat.reuse import Beginning, ChatReuse
    from mmroute.chat.template import ChatTemplate

__all__ = ["Chat", "check_api_fields"]


class Chat(Protocol):
    """Renders conversations of one model. Immutable and safe to share.

    What is about templates is here as for an engine that uses none for this model.
    """

    __slots__ = ()

    @property
    def content_format(self) -> str:
        """How message contents reach the template: ``openai`` (parts) or ``string``."""
        return "string"

    @property
    def origins(self) -> Mapping[str, str]:
        """What decides how chats are rendered, and where each of it was found."""

    @property
    def templates(self) -> Mapping[str, ChatTemplate] | None:
        """Those for requests without tools (``default``) and with (``tool_use``).

        None where the tokenizer encodes chats itself.
        """
        return {}

    @property
    def request_fields(self) -> frozenset[str]:
        """Of the engine's API, beside those of a `Request`: what this model's prompts depend on."""
        return frozenset()

    def with_template(self, template: ChatTemplate) -> Chat:
        """The same renderer with another template for all requests."""
        return self

    def with_content_format(self, content_format: str) -> Chat:
        """The same renderer, whose templates get message contents in another form."""
        return self

    def begin(self, request: Request, reuse: ChatReuse) -> Beginning | None:
        """What is known of the messages of a request; None if they are to be looked at from anew.

        Args:
            request: not yet checked.
            reuse: the cache of rendered chats of this model.
        """
        return None

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str | TokenIds:
        """Render a conversation.

        Args:
            chat: the messages of the request.
            items: of its media parts.
            request: with its options.

        Returns:
            The text after the chat template; or the token IDs, where the engine's renderer
            gives those at once (mistral-common).

        Raises:
            InexactError: the engine would not accept it, or it cannot be rendered exactly.
        """


def check_api_fields(chat: Chat, request: Request) -> None:
    """Refuse fields that the model's renderer reads, and mmroute does not.

    Raises:
        InexactError: `unsupported_field`.
    """
    found = sorted(chat.request_fields & request.api_fields.keys())
    if "tool_choice" in found and (
        not request.tools or request.api_fields["tool_choice"] == "auto"
    ):
        found.remove("tool_choice")  # what the engine takes without the field
    if found:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"{', '.join(found)}: the engine's token IDs depend on it, and it is not covered",
        )
