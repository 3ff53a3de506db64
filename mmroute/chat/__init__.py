"""Chat messages to a prompt, as the backend renders them."""

from mmroute.chat.prompt import Chat

__all__ = ["Chat"]
