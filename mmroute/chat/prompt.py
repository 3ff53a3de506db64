"""What all chat renderers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mmroute.image_queue import ImageQueue
from mmroute.request import Message, RequestOptions

__all__ = ["Chat"]


class Chat(Protocol):
    """Renders conversations of one model. Immutable and safe to share."""

    @property
    def content_format(self) -> str:
        """How message contents reach the template: ``openai`` (parts) or ``string``."""

    def render(
        self, messages: Sequence[Message], images: ImageQueue, options: RequestOptions
    ) -> str | list[int]:
        """Render a conversation.

        Args:
            messages: of the request.
            images: from which its image parts take their images, all of them.
            options: of the request.

        Returns:
            The text after the chat template; or the token IDs, where the backend's renderer
            gives those at once (mistral-common).

        Raises:
            InexactError: the engine would not accept it, or it cannot be rendered exactly.
        """
