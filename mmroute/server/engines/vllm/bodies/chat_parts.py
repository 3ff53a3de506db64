"""The parts of chats that all APIs have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmroute.engines.vllm.bodies.errors import require
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam


def image_part(url: str | None, **more: Any) -> dict[str, Any]:
    """The content part of an image."""
    require(url, "An image has neither data nor a URL.", "multi_modal_uuids")
    return {"type": "image_url", "image_url": {"url": url}, **more}


def function_tool(name: str, fields: Mapping[str, Any]) -> ChatCompletionToolsParam:
    """A tool of a chat, with the fields that all APIs have. A missing field is null."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": fields.get("description"),
            "parameters": fields.get("parameters"),
            "strict": fields.get("strict"),
            "defer_loading": fields.get("defer_loading"),
        },
    }
