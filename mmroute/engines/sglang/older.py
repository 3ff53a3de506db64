"""What SGLang did of requests before 0.5.23, put as requests to the newest version.

Source: SGLang 0.5.20, 0.5.21 and 0.5.22 ``srt/entrypoints/openai/protocol.py``,
``srt/managers/tokenizer_manager.py`` (`_tokenize_texts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mmroute.errors import invalid
from mmroute.requests.request import Request

# The order in which the fields of a tool's function were written.
_FUNCTION: Final = ("description", "name", "parameters", "strict", "defer_loading")


def with_whole_tools(request: Request) -> Request:
    """Before 0.5.23 tools were shown with all fields, in one order.

    Some values of its fields were not known, and ``prefix`` of a message was not read.
    """
    if request.reasoning_effort == "ultra":
        raise invalid("this version of SGLang has no reasoning_effort 'ultra'")
    messages: object = request.messages
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        request = request._replace(messages=[_message(message) for message in messages])
    tools: object = request.tools
    if isinstance(tools, list):
        request = request._replace(tools=[_tool(tool) for tool in tools])
    return request


def with_text(request: Request) -> Request:
    """Before 0.5.22 an empty text was refused."""
    if request.prompt == "":
        raise invalid("this version of SGLang refuses an empty text")
    return with_whole_tools(request)


def _message(message: Any) -> Any:
    if not isinstance(message, Mapping):
        return message
    if str(message.get("role")).lower() == "root":
        raise invalid("this version of SGLang has no role 'root'")
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        url = part.get("image_url") if isinstance(part, Mapping) else None
        if isinstance(url, Mapping) and url.get("detail") == "default":
            raise invalid("this version of SGLang has no detail 'default' of a picture")
    if "prefix" not in message:
        return message
    return {name: value for name, value in message.items() if name != "prefix"}


def _tool(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return tool
    if function.get("strict", False) is None:
        raise invalid("this version of SGLang takes no null as strict of a tool")
    whole = {"strict": False, **function}
    return {**tool, "function": {name: whole.get(name) for name in _FUNCTION}}
