"""Whether the parameters of a tool are a JSON Schema, as SGLang asks jsonschema.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/serving_chat.py`` (`_validate_request`),
``srt/function_call/utils.py`` (`normalize_json_schema_types`); the meta-schema of draft 2020-12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from mmroute.errors import InexactError, Reason, invalid, quoted

_Check: TypeAlias = Callable[[Any], bool]
_DEEPEST: Final = 40  # the engine refuses what its stack has no room for, at 60 to 100 levels
_TYPES: Final = frozenset({
    "array", "boolean", "integer", "null", "number", "object", "string",
})  # fmt: skip
_ANCHOR: Final = r"^[A-Za-z_][-A-Za-z0-9._]*$"
_SCHEMAS: Final = frozenset({
    "items", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
})  # fmt: skip
_LISTS: Final = frozenset({"prefixItems", "allOf", "anyOf", "oneOf"})
_MAPS: Final = frozenset({
    "$defs", "definitions", "properties", "patternProperties", "dependentSchemas",
})  # fmt: skip


def check_schema(schema: object, depth: int = 0) -> None:
    """Refuse what is no JSON Schema, and types that the engine writes otherwise.

    Raises `InexactError`.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise invalid(f"the parameters of a tool are no JSON Schema: found {quoted(schema)}")
    if depth > _DEEPEST:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"the parameters of a tool are nested in more than {_DEEPEST} levels",
        )
    for name, value in schema.items():
        if name == "type":
            _check_type(value)
        elif not _VALUES.get(name, _anything)(value):
            raise invalid(
                f"the parameters of a tool are no JSON Schema: {name} must not be {quoted(value)}"
            )
        for nested in _nested(name, value):
            check_schema(nested, depth + 1)


def _check_type(kind: object) -> None:
    named = kind if isinstance(kind, list) and kind else [kind]
    if not all(isinstance(name, str) for name in named):
        raise invalid(f"the parameters of a tool have the type {quoted(kind)}")
    if not _TYPES.issuperset(named) or len(set(named)) < len(named):
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"the parameters of a tool have the type {quoted(kind)}, which JSON Schema does "
            "not have",
        )


def _nested(name: str, value: Any) -> list[object]:
    """The schemas in the value of a keyword."""
    if name in _SCHEMAS:
        return [value]
    if name in _LISTS:
        return list(value)
    if name in _MAPS:
        return list(value.values())
    if name == "dependencies":
        return [entry for entry in value.values() if not _is_names(entry)]
    return []


def _anything(_: object) -> bool:
    return True


def _of(kind: type, fits: _Check = _anything) -> _Check:
    """A check for values of a type, whose entries or keys fit."""
    return lambda value: isinstance(value, kind) and fits(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value % 1 == 0


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_TEXT, value)) and len(set(value)) == len(value)


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _matches(pattern: str) -> _Check:
    return _of(str, lambda value: re.search(pattern, value) is not None)


_TEXT: Final = _of(str)
_FLAG: Final = _of(bool)
_MAP: Final = _of(dict)
_VALUES: Final[Mapping[str, _Check]] = {
    **dict.fromkeys(_LISTS, _of(list, bool)),
    **dict.fromkeys((*_MAPS, "dependencies"), _MAP),
    **dict.fromkeys(
        ("$schema", "$ref", "$dynamicRef", "$recursiveRef", "$comment", "title", "description",
         "format", "contentEncoding", "contentMediaType"),
        _TEXT,
    ),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"), _is_number),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains",
         "maxProperties", "minProperties"),
        _is_count,
    ),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _FLAG),
    **dict.fromkeys(("$anchor", "$dynamicAnchor", "$recursiveAnchor"), _matches(_ANCHOR)),
    **dict.fromkeys(("enum", "examples"), _of(list)),
    "$id": _matches(r"^[^#]*#?$"),
    "$vocabulary": _of(dict, lambda value: all(map(_FLAG, value.values()))),
    "dependentRequired": _of(dict, lambda value: all(map(_is_names, value.values()))),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": _is_pattern,
    "patternProperties": _of(dict, lambda value: all(map(_is_pattern, value))),
    "required": _is_names,
}  # fmt: skip
