"""JSON as SGLang reads it, with orjson, which is stricter than Python's own parser.

Source: SGLang ``srt/entrypoints/http_server.py`` (`ORJSONRequest`),
``srt/entrypoints/openai/serving_chat.py`` (`parse_tool_call_arguments`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from mmroute.errors import invalid, quoted

_INT64: Final = 1 << 63
_UINT64: Final = 1 << 64


def check_unicode(name: str, value: object) -> None:
    """Refuse half of a surrogate pair in a field, as orjson does anywhere in a body."""
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise invalid(f"{name} holds a lone surrogate: {error.reason}") from error
    elif isinstance(value, list | tuple):
        for entry in value:
            check_unicode(name, entry)
    elif isinstance(value, dict | Mapping):  # the second alone takes longer
        for key, entry in value.items():
            check_unicode(name, key)
            check_unicode(name, entry)


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a tool call."""
    try:
        arguments = json.loads(
            text, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise invalid(f"the arguments of a tool call must be JSON: {error}") from error
    check_unicode("the arguments of a tool call", arguments)
    if not isinstance(arguments, dict):
        raise invalid(f"the arguments of a tool call must be an object, found {quoted(arguments)}")
    return arguments


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int | float:
    """An integer; a float where it has more than 64 bits."""
    number = float(digits)
    if -_INT64 <= number <= _UINT64 and -_INT64 <= (exact := int(digits)) < _UINT64:
        return exact
    return _finite(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is infinity")
    return number
