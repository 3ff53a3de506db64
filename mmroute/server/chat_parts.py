"""Parts of the chats that requests of other APIs are turned into."""

from __future__ import annotations

from typing import Any

from mmroute.server.errors import require
from mmroute.server.protocol import ChatCompletionToolsParam

__all__ = ["function_tool", "image_part"]


def image_part(url: str | None, **more: Any) -> dict[str, Any]:
    """An image.

    Args:
        url: of it.
        more: keys that a template gets.

    Raises:
        ApiError: 400: it has no URL.
    """
    require(url, "An image has neither data nor a URL.", "multi_modal_uuids")
    return {"type": "image_url", "image_url": {"url": url}, **more}


def function_tool(
    name: str,
    description: str | None,
    parameters: dict[str, Any] | None,
    strict: bool | None = None,
    defer_loading: bool | None = None,
) -> ChatCompletionToolsParam:
    """A tool."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": parameters,
            "strict": strict,
            "defer_loading": defer_loading,
        },
    }
