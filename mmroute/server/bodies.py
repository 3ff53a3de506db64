"""From the bytes of a body to a request, and from pydantic's errors to vLLM's.

Source: vLLM 0.33.0 ``entrypoints/serve/exception_handling/handlers/validation.py``.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from mmroute.server.errors import ApiError, invalid_body
from mmroute.server.protocol import UNION_BRANCHES

__all__ = ["parse_body", "validated"]

T = TypeVar("T")

_MOST_ERRORS: Final = 10
_LONGEST_INPUT: Final = 200
_LONGEST_ERROR: Final = 1000
# Parts of a location that name no field but a type.
_BRANCHES: Final = frozenset({
    "str", "int", "float", "bool", "bytes", "list", "dict", "none", "nullable",
})  # fmt: skip
_BRACKETS: Final = frozenset("[](){}")


def parse_body(raw: bytes) -> Any:
    """The JSON value of a body; None where there is none.

    Raises:
        ApiError: 400: it is no JSON.
    """
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(raw)


def validated(kind: TypeAdapter[T], body: object) -> T:
    """The request that a body is.

    Raises:
        ApiError: 400: it is none; the message and `param` are vLLM's.
    """
    if body is None:
        raise _invalid([{"type": "missing", "loc": (), "msg": "Field required", "input": None}])
    try:
        return kind.validate_python(body, from_attributes=True)  # as FastAPI does
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False)) from None


def _parse_leniently(raw: bytes) -> object:
    """What Python's own reader makes of it, as vLLM's does: NaN, lone surrogates, a BOM."""
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        wrong = {"type": "json_invalid", "loc": (error.pos,), "msg": "JSON decode error"}
        raise _invalid([{**wrong, "input": {}, "ctx": {"error": error.msg}}]) from None
    except (ValueError, RecursionError):  # not UTF-8; nested too deeply
        raise invalid_body("There was an error parsing the body", "body") from None


def _invalid(errors: list[Any]) -> ApiError:
    label = "error" if len(errors) == 1 else "errors"
    lines = [f"{len(errors)} validation {label}:", *map(_line, errors[:_MOST_ERRORS])]
    if len(errors) > _MOST_ERRORS:
        lines.append(f"...and {len(errors) - _MOST_ERRORS} more {label}")
    return invalid_body("\n  ".join(lines), _location(errors[0]["loc"]))


def _line(error: dict[str, Any]) -> str:
    text = str({**error, "loc": _location(error["loc"]), "input": _input(error["input"])})
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}...[truncated]"


def _location(location: tuple[int | str, ...]) -> str:
    return ".".join(["body", *(str(part) for part in location if not _is_branch(str(part)))])


def _is_branch(part: str) -> bool:
    return part in _BRANCHES or not _BRACKETS.isdisjoint(part) or part in UNION_BRANCHES


def _input(value: object) -> str:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    try:
        text = str(value)
    except ValueError:  # an integer of too many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT]}...[truncated]"
