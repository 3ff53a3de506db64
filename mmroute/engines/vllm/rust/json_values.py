"""Values of a request as serde_json reads them.

Source: serde_json 1.0.149 (recursion limit, numbers), which vLLM's Rust frontend uses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from mmroute.chat.minijinja.json_text import tojson
from mmroute.chat.minijinja.values import UnknownResultError
from mmroute.errors import InexactError, Reason, invalid, quoted

COMPACT: Final[Mapping[str, Any]] = {"separators": [",", ":"]}
_DEEPEST: Final = 127
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1


def read_json(value: object, where: str, depth: int) -> Any:
    """A copy of a value, its numbers as serde_json has them.

    Args:
        value: the client's value, as plain JSON.
        where: the name of its field.
        depth: the number of objects and arrays around it.

    Raises:
        InexactError: `invalid_request`: serde_json refuses it.
    """
    if isinstance(value, str):
        if not value.isascii():
            _check_unicode(value, where)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if _SMALLEST <= value <= _LARGEST else _finite(_float(value), where)
    if isinstance(value, float):
        return _finite(value, where)
    if depth >= _DEEPEST:
        raise invalid(f"{where} is nested too deeply")
    if isinstance(value, Mapping):
        return {
            read_json(_key(key, where), where, depth): read_json(each, where, depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [read_json(each, where, depth + 1) for each in value]
    raise invalid(f"{where} holds a value that is not JSON: {quoted(value)}")


def parse_json(text: str, what: str) -> Any:
    """The value of a JSON text.

    Args:
        text: the client's text.
        what: a name for the text in messages, in the plural.

    Raises:
        InexactError: `chat_template_failed`: it is no JSON; `invalid_request`: serde_json refuses
            a value in it.
    """
    try:
        parsed = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise InexactError(Reason.CHAT_TEMPLATE_FAILED, f"{what} are not JSON: {error}") from None
    return read_json(parsed, what, 0)


def json_text(value: Any, **options: Any) -> str:
    """JSON as prompts have it, with a space behind each comma and colon.

    Args:
        value: the value.
        options: those of the filter ``tojson``, such as `COMPACT`.

    Raises:
        InexactError: `chat_template_failed`: it has a number that may be written in another way.
    """
    try:
        return tojson(value, **options)
    except UnknownResultError as error:
        raise InexactError(Reason.CHAT_TEMPLATE_FAILED, f"not covered: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int | float:
    return -0.0 if digits == "-0" else int(digits)


def _key(key: object, where: str) -> str:
    if isinstance(key, str):
        return key
    raise invalid(f"{where} has a key that is no text: {quoted(key)}")


def _check_unicode(value: str, where: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(f"{where} holds half of a surrogate pair, which is not Unicode") from None


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _finite(value: float, where: str) -> float:
    if math.isfinite(value):
        return value
    raise invalid(f"{where} holds a number that is out of range")
