"""Makes a prompt of chat messages: the parts that all engines share."""

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.parts import MediaPart, Part, TextPart, ToolReference
from mmroute.chat.rendered import Continued, Rendered
from mmroute.chat.renderer import Chat, check_api_fields

__all__ = [
    "Chat", "Continued", "MediaPart", "ParsedChat", "Part", "Rendered", "TextPart",
    "ToolReference", "check_api_fields",
]  # fmt: skip
