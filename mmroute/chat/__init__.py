"""Makes a prompt of chat messages: the parts that all engines share."""

from mmroute.chat.conversation import Continued, MediaPart, Part, Rendered, TextPart, ToolReference
from mmroute.chat.renderer import Chat, ParsedChat, check_api_fields

__all__ = [
    "Chat", "Continued", "MediaPart", "ParsedChat", "Part", "Rendered", "TextPart",
    "ToolReference", "check_api_fields",
]  # fmt: skip
