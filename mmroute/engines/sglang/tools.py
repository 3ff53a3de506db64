"""Makes the tool definitions that SGLang hands to templates.

Source: SGLang ``srt/entrypoints/openai/protocol.py`` (`Tool`, `Function`) and
``srt/function_call/utils.py`` (`normalize_json_schema_types`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mmroute.engines.judging import judged
from mmroute.engines.sglang.message_schema import TOOLS, Tool
from mmroute.errors import InexactError, Reason, quoted

_LEFT_OUT: Final = frozenset({"strict", "defer_loading"})  # where they are null
_TYPES: Final = frozenset({
    "array", "boolean", "integer", "null", "number", "object", "string",
})  # fmt: skip


def template_tools(tools: object) -> list[dict[str, Any]] | None:
    """The tool definitions for the template: known fields, in the client's order."""
    if not tools:
        return None
    known = judged(TOOLS.validate_python, tools, "tools")
    return [_shown(tool, sent) for tool, sent in zip(known, cast("Any", tools), strict=True)]


def _shown(tool: Tool, sent: Mapping[str, Any]) -> dict[str, Any]:
    _check_types(tool.function.parameters)
    fields = dict(vars(tool.function))
    if fields["defer_loading"] is None:
        fields["defer_loading"] = tool.defer_loading
    shown = {
        name: fields[name]
        for name in (*sent["function"], *fields)
        if name in fields and (fields[name] is not None or name not in _LEFT_OUT)
    }
    return {"type": tool.type, "function": shown, "defer_loading": tool.defer_loading}


def _check_types(schema: object) -> None:
    """Refuse types that JSON Schema does not have: the engine writes others in their place."""
    if isinstance(schema, list):
        for entry in schema:
            _check_types(entry)
    elif isinstance(schema, Mapping):
        kind = schema.get("type")
        named = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
        if not all(isinstance(name, str) and name in _TYPES for name in named):
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"the parameters of a tool have the type {quoted(kind)}, which JSON Schema does "
                "not have",
            )
        for value in schema.values():
            _check_types(value)
