"""Chats that the engine renders in a way that is not covered: they are refused, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.template import ChatTemplate
from mmroute.errors import InexactError, Reason
from mmroute.geometry import TokenIds
from mmroute.items import Items
from mmroute.request import Request

__all__ = ["RefusedChat"]


@dataclass(frozen=True, slots=True)
class RefusedChat:
    """Refuses every chat.

    Attributes:
        why: the message of the refusal.
    """

    why: str

    @property
    def content_format(self) -> str:
        return "string"

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": f"refused: {self.why}"}

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        """There are none that the engine uses."""
        return {}

    @property
    def request_fields(self) -> frozenset[str]:
        return frozenset()

    def with_template(self, template: ChatTemplate) -> RefusedChat:
        return self

    def with_content_format(self, content_format: str) -> RefusedChat:
        """See `Chat.with_content_format`."""
        return self

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        raise InexactError(Reason.CHAT_RENDERER_UNSUPPORTED, self.why)
