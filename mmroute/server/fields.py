"""The fields of a request body, read as leniently as vLLM's schema reads them.

pydantic's lax mode takes ``"yes"`` for a boolean and ``"12"`` for an integer. Only the shape of an
error is vLLM's here (status, type, param), not its words.

Source: vLLM 0.33.0 ``entrypoints/openai`` protocols with pydantic 2.14, as observed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from mmroute.errors import shown
from mmroute.server.errors import ApiError, wrong_field

__all__ = [
    "Body", "boolean", "bounded", "fits", "integer", "list_of", "nullable", "number", "object_",
    "object_of", "parse_body", "read", "read_nullable", "text",
]  # fmt: skip

Body = Mapping[str, Any]
T = TypeVar("T")

_TRUE: Final = frozenset({"1", "t", "true", "y", "yes", "on"})
_FALSE: Final = frozenset({"0", "f", "false", "n", "no", "off"})
_MISSING: Final = object()
_BEYOND_INT64: Final = 2.0**63  # no float from there on stands for an integer


def parse_body(raw: bytes) -> dict[str, Any]:
    """The JSON object of a request.

    Raises:
        ApiError: 400: it is none.
    """
    if not raw:
        raise wrong_field("body", "Field required")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _parse_leniently(raw)
    if value is None:
        raise wrong_field("body", "Field required")
    if not isinstance(value, dict):
        raise wrong_field("body", f"Input should be a valid dictionary, found {shown(value)}")
    return value


def _parse_leniently(raw: bytes) -> object:
    """What Python's own reader makes of it, as vLLM's does: NaN, lone surrogates, a BOM."""
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise wrong_field(f"body.{error.pos}", f"JSON decode error: {error.msg}") from None
    except (ValueError, RecursionError):  # not UTF-8; nested too deeply
        raise wrong_field("body", "There was an error parsing the body") from None


def read(
    body: Body, name: str, kind: Callable[[Any, str], T], default: T, *, where: str = "body"
) -> T:
    """A field that may be absent, but not null.

    Args:
        body: the object that has it.
        name: of the field.
        kind: reads its value.
        default: where it is absent.
        where: the object stands in the request.

    Raises:
        ApiError: 400: it is there and of another kind.
    """
    value = body.get(name, _MISSING)
    return default if value is _MISSING else kind(value, f"{where}.{name}")


def read_nullable(
    body: Body, name: str, kind: Callable[[Any, str], T], *, where: str = "body"
) -> T | None:
    """A field that may be absent or null; see `read`.

    Raises:
        ApiError: 400: it is there and of another kind.
    """
    value = body.get(name)
    return None if value is None else kind(value, f"{where}.{name}")


def nullable(kind: Callable[[Any, str], T]) -> Callable[[Any, str], T | None]:
    """The same kind, or null."""
    return lambda value, location: None if value is None else kind(value, location)


def text(value: object, location: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong_field(location, f"Input should be a valid string, found {shown(value)}")
    return value


def boolean(value: object, location: str) -> bool:
    """True, false, or what stands for one of them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    elif isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise wrong_field(location, f"Input should be a valid boolean, found {shown(value)}")


def integer(value: object, location: str) -> int:
    """An integer, or what stands for one: a text with nothing but zeros after its point, too."""
    if type(value) is int:
        return value
    try:
        if isinstance(value, str):
            whole, _, zeros = value.strip().partition(".")
            return int(value if zeros.strip("0") else whole)
        if isinstance(value, float) and value.is_integer() and abs(value) < _BEYOND_INT64:
            return int(value)
        if isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise wrong_field(location, f"Input should be a valid integer, found {shown(value)}")


def number(value: object, location: str) -> float:
    """A number, or what stands for one."""
    try:
        if isinstance(value, str | int | float):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise wrong_field(location, f"Input should be a valid number, found {shown(value)}")


def object_(value: object, location: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise wrong_field(location, f"Input should be a valid dictionary, found {shown(value)}")
    return value


def object_of(kind: Callable[[Any, str], T]) -> Callable[[Any, str], dict[str, T]]:
    """A JSON object with values of one kind."""

    def reader(value: object, location: str) -> dict[str, T]:
        return {
            name: kind(item, f"{location}.{name}")
            for name, item in object_(value, location).items()
        }

    return reader


def list_of(kind: Callable[[Any, str], T]) -> Callable[[Any, str], list[T]]:
    """A list of values of one kind."""

    def reader(value: object, location: str) -> list[T]:
        if not isinstance(value, list):
            raise wrong_field(location, f"Input should be a valid list, found {shown(value)}")
        return [kind(item, f"{location}.{index}") for index, item in enumerate(value)]

    return reader


def bounded(
    kind: Callable[[Any, str], float], low: float = -math.inf, high: float = math.inf
) -> Callable[[Any, str], Any]:
    """A number within bounds."""

    def reader(value: object, location: str) -> float:
        found = kind(value, location)
        if not low <= found <= high:
            raise wrong_field(location, f"Input should be {low} to {high}, found {shown(found)}")
        return found

    return reader


def fits(kind: Callable[[Any, str], object], value: object) -> bool:
    """Whether a value is of a kind."""
    try:
        kind(value, "body")
    except ApiError:
        return False
    return True
