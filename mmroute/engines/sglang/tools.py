"""Makes the tool definitions that SGLang hands to templates.

Source: SGLang ``srt/entrypoints/openai/protocol.py`` (`Tool`, `Function`) and
``srt/function_call/utils.py`` (`normalize_json_schema_types`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.errors import JSON_TYPES, InexactError, Reason, invalid, quoted

_FIELDS: Final = ("description", "name", "parameters", "strict", "defer_loading")
_KINDS: Final[Mapping[str, type]] = {"description": str, "strict": bool, "defer_loading": bool}
_TYPES: Final = frozenset({
    "array", "boolean", "integer", "null", "number", "object", "string",
})  # fmt: skip


def template_tools(tools: object) -> list[dict[str, Any]] | None:
    """The tool definitions for the template: known fields, in the client's order.

    Raises:
        InexactError: `invalid_request`; `unsupported_field` for types of parameters that JSON
            Schema does not have: the engine writes others in their place.
    """
    if not tools:
        return None
    if not isinstance(tools, list):
        raise invalid(f"tools must be a list of tool definitions, or absent; found {quoted(tools)}")
    return [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]


def _tool(tool: object, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(function, Mapping):
        raise invalid(f"{where} must be an object with a `function` object, found {quoted(tool)}")
    kind, deferred = tool.get("type", "function"), tool.get("defer_loading")
    if not isinstance(kind, str) or not isinstance(deferred, bool | None):
        raise invalid(
            f"{where}: type must be a string, and defer_loading true or false; found "
            f"{quoted(kind)} and {quoted(deferred)}"
        )
    if not isinstance(function.get("name"), str):
        raise invalid(f"{where}.function.name must be a string, found {quoted(function)}")
    for name, wanted in _KINDS.items():
        if function.get(name) is not None and not isinstance(function[name], wanted):
            raise invalid(
                f"{where}.function.{name} must be of type {JSON_TYPES[wanted]}, found "
                f"{quoted(function[name])}"
            )
    _check_types(function.get("parameters"), where)
    fields = {name: function.get(name) for name in _FIELDS}
    if deferred is not None and fields["defer_loading"] is None:
        fields["defer_loading"] = deferred
    ordered = {name: fields.pop(name) for name in function if name in fields} | fields
    kept = {
        name: value
        for name, value in ordered.items()
        if value is not None or name not in ("strict", "defer_loading")
    }
    return {"type": kind, "function": kept, "defer_loading": deferred}


def _check_types(schema: object, where: str) -> None:
    if isinstance(schema, list):
        for entry in schema:
            _check_types(entry, where)
    elif isinstance(schema, Mapping):
        kind = schema.get("type")
        named = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
        if not all(isinstance(name, str) and name in _TYPES for name in named):
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"{where}.function.parameters has the type {quoted(kind)}, which JSON Schema does "
                "not have",
            )
        for value in schema.values():
            _check_types(value, where)
