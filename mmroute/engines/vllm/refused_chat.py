"""Chats that the engine renders in a way that is not covered: they are refused, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.renderer import Chat
from mmroute.errors import InexactError, Reason
from mmroute.geometry import TokenIds
from mmroute.items import Items
from mmroute.request import Request

__all__ = ["RefusedChat"]


@dataclass(frozen=True, slots=True)
class RefusedChat(Chat):
    """Refuses every chat.

    Attributes:
        why: the message of the refusal.
    """

    why: str

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": f"refused: {self.why}"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        raise InexactError(Reason.CHAT_RENDERER_UNSUPPORTED, self.why)
