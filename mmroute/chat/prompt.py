"""What a chat renderer takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mmroute.request import ImageSize, Message, RequestOptions

__all__ = ["Chat", "ChatPrompt"]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered conversation.

    Attributes:
        prompt: the text after the chat template; or the token IDs, where the backend's
            renderer gives those at once (mistral-common).
        images: the images in the order in which the messages hold them.
    """

    prompt: str | list[int]
    images: tuple[ImageSize, ...]


class Chat(Protocol):
    """Renders conversations of one model. Immutable and safe to share."""

    @property
    def content_format(self) -> str:
        """How message contents reach the template: ``openai`` (parts) or ``string``."""

    def render(
        self, messages: Sequence[Message], images: Sequence[ImageSize], options: RequestOptions
    ) -> ChatPrompt:
        """Render a conversation.

        Raises:
            InexactError: the engine would not accept it, or it cannot be rendered exactly.
        """
