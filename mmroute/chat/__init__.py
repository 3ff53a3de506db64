"""Chat messages to a prompt: what all engines share."""

from mmroute.chat.conversation import MediaPart, ParsedChat, Part, TextPart, ToolReference
from mmroute.chat.renderer import Chat, check_api_fields

__all__ = [
    "Chat", "MediaPart", "ParsedChat", "Part", "TextPart", "ToolReference", "check_api_fields",
]  # fmt: skip
