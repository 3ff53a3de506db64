"""Chats of models that the engine renders by Python code of its own, not by a template.

Source: vLLM 0.33.0 ``renderers/`` (deepseek_v32, deepseek_v4, inkling) and openai-harmony for
gpt-oss, whose prompts also hold the server's date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.template import ChatTemplate
from mmroute.errors import InexactError, Reason
from mmroute.geometry import TokenIds
from mmroute.items import Item
from mmroute.request import Request

__all__ = ["RefusedChat"]


@dataclass(frozen=True, slots=True)
class RefusedChat:
    """Refuses every chat, by the name of the family."""

    family: str

    @property
    def content_format(self) -> str:
        return "string"

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "refused: the engine renders it by code of its own"}

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

    def render(self, chat: ParsedChat, items: Sequence[Item], request: Request) -> TokenIds:
        raise InexactError(
            Reason.CHAT_RENDERER_UNSUPPORTED,
            f"the engine renders chats of the family {self.family} by Python code of its own, not "
            "by a template; send the rendered `prompt`, or `prompt_token_ids`",
        )
