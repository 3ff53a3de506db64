"""Values of a request as serde_json reads them.

Source: serde_json 1.0.149 (recursion limit, numbers), which vLLM's Rust frontend uses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

from mmroute.errors import InexactError, Reason, invalid, quoted

_DEEPEST: Final = 127
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1
# Integers below this, and powers of ten up to this one, are exact as floats.
_EXACT: Final = 2**53
_EXACT_POWER: Final = 22


def read_json(value: object, where: str, depth: int) -> Any:
    """A copy of a value, its numbers as serde_json has them."""
    if isinstance(value, str):
        if not value.isascii():
            _check_unicode(value, where)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if _SMALLEST <= value <= _LARGEST else _sure(_float(value), where)
    if isinstance(value, float):
        return _sure(value, where)
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
    """The value of a JSON text."""
    try:
        parsed = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise InexactError(Reason.CHAT_TEMPLATE_FAILED, f"{what} are not JSON: {error}") from None
    return read_json(parsed, what, 0)


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


def _sure(value: float, where: str) -> float:
    """A number that serde_json has read as Python does.

    It multiplies or divides by a power of ten, which is not always rounded right.
    """
    if not math.isfinite(value):
        raise invalid(f"{where} holds a number that is out of range")
    _, significand, exponent = Decimal(repr(value)).normalize().as_tuple()
    large = sum(d * 10**i for i, d in enumerate(reversed(significand))) >= _EXACT
    if large or not isinstance(exponent, int) or abs(exponent) > _EXACT_POWER:
        raise InexactError(
            Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE,
            f"{where} holds {value}; how the engine reads a number of many digits, or with a large "
            "exponent, is not covered",
        )
    return value
