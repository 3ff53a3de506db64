"""Checks tool definitions and tool calls, and makes those that vLLM hands to templates.

Source: vLLM ``ChatCompletionToolsParam``, ``FunctionDefinition`` and
``renderers/chat_utils/chat_message.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mmroute.errors import JSON_TYPES, InexactError, Reason, invalid, json_type, quoted

_FUNCTION_FIELDS: Final = ("name", "description", "parameters", "strict")
_CALL_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "function": ("arguments", "name"), "custom": ("input", "name"),
}  # fmt: skip
"""Types of tool calls, which are also the keys of what is called -> the texts in it."""
_OPTIONAL: Final[Mapping[str, type]] = {
    "description": str, "parameters": dict, "strict": bool, "defer_loading": bool,
}  # fmt: skip

MISTRAL_ID_LENGTH: Final = 9
"""The length that mistral-common wants of the ID of a tool call."""


class OrderedFunction(dict[str, Any]):
    """The function of a tool call that did not come by the API's schema, which orders its keys.

    A template may print it.
    """


def normalize_tools(tools: object) -> list[dict[str, Any]] | None:
    """The tool definitions for the template.

    They have only known fields. A missing description, or missing parameters, are null.

    Raises:
        InexactError: `invalid_request`.
    """
    if tools is None:
        return None
    if not isinstance(tools, list) or not tools:
        raise invalid(
            f"tools must be a non-empty list of tool definitions, or absent; found {quoted(tools)}"
        )
    return [_normalize_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]


def _normalize_tool(tool: object, where: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        raise invalid(f'{where} must be an object of "type": "function", found {quoted(tool)}')
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise invalid(f"{where}.function.name must be a string, found {quoted(function)}")
    for name, kind in _OPTIONAL.items():
        if function.get(name) is not None and not isinstance(function[name], kind):
            raise invalid(
                f"{where}.function.{name} must be of type {JSON_TYPES[kind]}, found "
                f"{quoted(function[name])}"
            )
    deferred = tool.get("defer_loading")
    if deferred is not None and not isinstance(deferred, bool):
        raise invalid(f"{where}.defer_loading must be true or false, found {quoted(deferred)}")
    normalized: dict[str, Any] = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
    }
    own = function.get("defer_loading")
    more = {"strict": function.get("strict"), "defer_loading": deferred if own is None else own}
    normalized |= {name: value for name, value in more.items() if value is not None}
    outer: dict[str, Any] = {"type": "function", "function": normalized}
    return outer if deferred is None else outer | {"defer_loading": deferred}


def ordered_tools(tools: object) -> list[dict[str, Any]] | None:
    """The tools of a developer's message, with the fields of the API's schema first.

    Returns:
        None if a tool does not fit the schema, which changes none of them then.
    """
    if not isinstance(tools, list) or not all(map(_fits, tools)):
        return None
    return [
        _with_first(tool, "function", "type")
        | {"function": _with_first(f, *(name for name in _FUNCTION_FIELDS if name in f))}
        for tool in tools
        for f in [tool["function"]]
    ]


def _fits(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return (
        isinstance(tool, Mapping)
        and tool.get("type") == "function"
        and isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("description", ""), str)
        and isinstance(function.get("parameters", {}), dict)
        and isinstance(function.get("strict"), bool | None)
    )


def check_tool_calls(calls: object, role: str, where: str) -> list[Any]:
    """Check the tool calls of a message. The parts that later steps change are copied.

    Raises:
        InexactError: `invalid_request`; `unsupported_field` for calls that only some roles have.
    """
    if not isinstance(calls, list):
        if isinstance(calls, str | Mapping):  # of which vLLM makes a list
            raise InexactError(
                Reason.UNSUPPORTED_FIELD, f"{where}.tool_calls is no list, and not covered"
            )
        raise invalid(f"{where}.tool_calls must be a list, found {json_type(calls)}")
    try:
        return [_check_tool_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    except InexactError as error:
        if role == "assistant":
            raise
        # Most roles take them as they are, and only Harmony looks at them.
        raise InexactError(Reason.UNSUPPORTED_FIELD, str(error)) from None


def _check_tool_call(call: object, where: str) -> dict[str, Any]:
    kind = call.get("type") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(kind, str) or kind not in _CALL_FIELDS:
        raise invalid(f'{where} must be an object of "type": "function", found {quoted(call)}')
    held = call.get(kind)
    if not isinstance(call.get("id"), str) or not isinstance(held, Mapping):
        raise invalid(f"{where} must have an `id` and a `{kind}` object, found {quoted(call)}")
    for name in _CALL_FIELDS[kind]:
        if not isinstance(value := held.get(name), str):
            raise invalid(f"{where}.{kind}.{name} must be a string, found {quoted(value)}")
    # The API's schema puts its own fields first, and a template may print the whole call.
    ordered: dict[str, Any] = (
        dict(held) if isinstance(held, OrderedFunction) else _with_first(held, *_CALL_FIELDS[kind])
    )
    return _with_first(call, "id", kind, "type") | {kind: ordered}


def with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call whose arguments are an object, which is empty if they are no JSON object.

    Raises:
        InexactError: `invalid_request`: it is the call of a custom tool, which no template gets.
    """
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


def _with_first(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: mapping[name] for name in names} | dict(mapping)
