"""minijinja's filters and tests, as far as chat templates use them.

Source: minijinja 2.24.0 ``filters.rs``, ``tests.rs``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import Undefined

from mmroute.chat.minijinja.json_text import tojson
from mmroute.chat.minijinja.strings import WHITESPACE, ascii_only, capitalized, titled
from mmroute.chat.minijinja.values import (
    Iterable,
    at_path,
    contains,
    failed,
    is_number,
    items_of,
    sort_key,
    text,
    unknown,
)

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | dict) else failed("value has no length")


def _default(value: Any, other: Any = "", lax: Any = False, **kwargs: Any) -> Any:
    if kwargs:  # minijinja takes the keyword arguments themselves for the next argument
        if other == "" or lax is not False:
            unknown("default with keyword arguments")
        lax = True
    return other if isinstance(value, Undefined) or (lax and not value) else value


def _trim(value: Any, chars: Any = None) -> str:
    return text(value).strip(WHITESPACE if chars is None else text(chars))


def _join(value: Any, joiner: Any = "") -> str:
    return text(joiner).join(map(text, items_of(value)))


def _replace(value: Any, old: Any, new: Any) -> str:
    return text(value).replace(text(old), text(new))


def _indent(value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> str:
    if type(width) is not int or width < 0:
        unknown("indent by what is no number")
    lines = text(value).removesuffix("\n").removesuffix("\r").split("\n")
    indented = [" " * width + line if line or blank else line for line in lines]
    if not first:
        indented[0] = lines[0]
    return "\n".join(indented).removesuffix("\n").removesuffix("\r")


def _items(value: Any) -> Iterable:
    if not isinstance(value, dict):
        failed("cannot convert value into pairs")
    return Iterable([key, each] for key, each in value.items())


def _dictsort(
    value: Any, *, by: Any = None, case_sensitive: Any = False, reverse: Any = False
) -> list[Any]:
    if not isinstance(value, dict):
        failed("cannot convert value into pair list")
    at = 1 if by == "value" else 0
    return _sorted(
        [[k, v] for k, v in value.items()], lambda pair: pair[at], case_sensitive, reverse
    )


def _sort(
    value: Any, *, case_sensitive: Any = False, reverse: Any = False, attribute: Any = None
) -> list[Any]:
    if attribute is None:
        return _sorted(items_of(value), lambda each: each, case_sensitive, reverse)
    if not isinstance(attribute, str) or "," in attribute:
        unknown("sort by several attributes")
    return _sorted(items_of(value), lambda each: at_path(each, attribute), case_sensitive, reverse)


def _sorted(values: list[Any], key: Callable[[Any], Any], case: Any, reverse: Any) -> list[Any]:
    if case not in (True, False) or reverse not in (True, False):
        unknown("sort with an option that is no boolean")
    keys = [
        key(each) if case and isinstance(key(each), str) else sort_key(key(each)) for each in values
    ]
    if len({type(each) is str for each in keys}) > 1:
        unknown("the order of texts and numbers")
    order = sorted(range(len(values)), key=keys.__getitem__, reverse=reverse)
    return [values[i] for i in order]


def _first(value: Any) -> Any:
    if not isinstance(value, str | list | dict):
        failed("cannot get first item from value")
    return next(iter(value), Undefined())


def _last(value: Any) -> Any:
    if not isinstance(value, str | list):
        failed("cannot get last item from value")
    return value[-1] if value else Undefined()


def _reverse(value: Any) -> Any:
    if isinstance(value, str):
        return value[::-1]
    return Iterable(value[::-1]) if isinstance(value, list) else unknown("reverse")


def _int(value: Any) -> int:
    if isinstance(value, bool | int) or value is None or isinstance(value, Undefined):
        return int(value or 0)
    if isinstance(value, float):
        return int(value) if abs(value) < 2**53 else unknown("int of a large number")
    if not isinstance(value, str):
        failed("cannot convert value to integer")
    if _INTEGER.fullmatch(value):
        return int(value)
    return int(_float(value))


def _float(value: Any) -> float:
    if value is None or isinstance(value, bool | int | float | Undefined):
        return float(value or 0)
    if not isinstance(value, str):
        failed("cannot convert value to float")
    return float(value) if _DECIMAL.fullmatch(value) else unknown("float of such a text")


def _select(value: Any, *test: Any, keep: bool, attribute: str | None = None) -> list[Any]:
    def passes(each: Any) -> bool:
        tested = each if attribute is None else at_path(each, attribute)
        if not test:
            return bool(tested)
        name, *args = test
        return TESTS[name](tested, *args) if name in TESTS else unknown(f"test {name}")

    return [each for each in items_of(value) if passes(each) is keep]


def _map(value: Any, *args: Any, attribute: Any = None, default: Any = None) -> list[Any]:
    if attribute is not None and not args:
        found = [at_path(each, attribute) for each in items_of(value)]
        if default is None:
            return found
        return [default if isinstance(each, Undefined) else each for each in found]
    if attribute is not None or default is not None or not args or args[0] not in FILTERS:
        unknown("map by such arguments")
    return [FILTERS[args[0]](each, *args[1:]) for each in items_of(value)]


def _whole(value: Any) -> int:
    return value if type(value) is int else unknown("a test for numbers of another value")


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "capitalize": lambda value: capitalized(text(value)),
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "first": _first,
    "float": _float,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": lambda value: list(items_of(value)),
    "lower": lambda value: ascii_only(text(value), "lower").lower(),
    "map": _map,
    "reject": lambda value, *test: _select(value, *test, keep=False),
    "rejectattr": lambda value, name, *test: _select(value, *test, keep=False, attribute=name),
    "replace": _replace,
    "reverse": _reverse,
    "safe": text,
    "select": lambda value, *test: _select(value, *test, keep=True),
    "selectattr": lambda value, name, *test: _select(value, *test, keep=True, attribute=name),
    "sort": _sort,
    "string": text,
    "title": lambda value: titled(text(value)),
    "tojson": tojson,
    "trim": _trim,
    "upper": lambda value: ascii_only(text(value), "upper").upper(),
}
"""Those that are known here. jinja2 has others, and minijinja yet others."""

TESTS: Final[Mapping[str, Callable[..., bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "divisibleby": lambda value, by: _whole(value) % _whole(by) == 0,
    "eq": lambda value, other: bool(value == other),
    "==": lambda value, other: bool(value == other),
    "equalto": lambda value, other: bool(value == other),
    "even": lambda value: _whole(value) % 2 == 0,
    "false": lambda value: value is False,
    "float": lambda value: isinstance(value, float),
    "in": contains,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "iterable": lambda value: not isinstance(value, bool | int | float),
    "mapping": lambda value: isinstance(value, dict),
    "ne": lambda value, other: bool(value != other),
    "!=": lambda value, other: bool(value != other),
    "none": lambda value: value is None,
    "number": is_number,
    "odd": lambda value: _whole(value) % 2 != 0,
    "sequence": lambda value: isinstance(value, list) and not isinstance(value, Iterable),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
}
"""Tests by name, likewise."""
