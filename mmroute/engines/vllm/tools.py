"""Makes the tool definitions and tool calls that vLLM hands to templates.

Source: vLLM ``ChatCompletionToolsParam``, ``FunctionDefinition`` and
``renderers/chat_utils/chat_message.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mmroute.errors import invalid

MISTRAL_ID_LENGTH: Final = 9
"""The length that mistral-common wants of the ID of a tool call."""


class OrderedFunction(dict[str, Any]):
    """The function of a tool call that did not come by the API's schema, which orders its keys.

    A template may print it.
    """


def normalize_tools(tools: object) -> list[dict[str, Any]] | None:
    """The tool definitions for the template, with their known fields only."""
    if tools is None:
        return None
    from mmroute.engines.judging import judged
    from mmroute.engines.vllm.message_types import TOOLS

    return [_normalized(tool) for tool in judged(TOOLS.validate_python, tools, "tools")]


def _normalized(tool: Mapping[str, Any]) -> dict[str, Any]:
    function, deferred = tool["function"], tool.get("defer_loading")
    own = function.get("defer_loading")
    more = {"strict": function.get("strict"), "defer_loading": deferred if own is None else own}
    normalized = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        **{name: value for name, value in more.items() if value is not None},
    }
    outer = {"type": "function", "function": normalized}
    return outer if deferred is None else outer | {"defer_loading": deferred}


def with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call whose arguments are an object, which is empty if they are no JSON object."""
    if call["type"] != "function":
        raise invalid(f"the engine takes no tool calls of type {call['type']!r} for this model")
    function = dict(call["function"])
    try:
        arguments = json.loads(function["arguments"]) if function["arguments"] else {}
    except ValueError:
        arguments = {}
    except RecursionError:
        raise invalid("the arguments of a tool call are nested too deeply") from None
    function["arguments"] = arguments if isinstance(arguments, dict) else {}
    return dict(call) | {"function": function}
