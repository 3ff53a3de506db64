"""Methods of texts, mappings and lists, as minijinja's ``pycompat`` has them.

Source: minijinja-contrib 2.24.0 ``pycompat.rs``.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import Undefined

from mmroute.chat.minijinja.values import Iterable, failed, text, unknown

WHITESPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What Rust trims: Unicode's White_Space. Python's ``strip`` also takes U+001C to U+001F."""
_SPACES: Final = dict.fromkeys(map(ord, WHITESPACE), " ")
_BREAKS: Final = frozenset(string.punctuation + WHITESPACE)


def method(value: Any, name: str, *args: Any) -> Any:
    """``value.name(*args)``."""
    found = next((m[name] for k, m in _METHODS.items() if isinstance(value, k) and name in m), None)
    if found is not None:
        return found(value, *args)  # a wrong number of arguments is an error to both
    if value is None or isinstance(value, str | dict | list | bool | int | float | Undefined):
        failed(f"{type(value).__name__} has no method named {name}")
    return unknown(f"method {name} of {type(value).__name__}")


def ascii_only(value: str, what: str) -> str:
    """A text whose case does not depend on the version of Unicode."""
    if not value.isascii():
        unknown(f"{what} of a text that is not ASCII")
    return value


def capitalized(value: str) -> str:
    """The first letter in upper case, the others in lower."""
    return ascii_only(value, "capitalize").capitalize()


def titled(value: str) -> str:
    """Each letter behind punctuation or whitespace in upper case, the others in lower."""
    result, starts = [], True
    for char in ascii_only(value, "title"):
        breaks = char in _BREAKS
        result.append(char if breaks else char.upper() if starts else char.lower())
        starts = breaks
    return "".join(result)


def _all(test: str) -> Callable[[str], bool]:
    """Whether all characters pass; unlike in Python those of an empty text do."""
    return lambda value: all(getattr(char, test)() for char in ascii_only(value, test))


def _strip(side: str) -> Callable[..., str]:
    def stripped(value: str, chars: Any = None) -> str:
        result: str = getattr(value, side)(WHITESPACE if _absent(chars) else _text(chars))
        return result

    return stripped


def _affix(test: str) -> Callable[..., bool]:
    def has(value: str, affix: Any) -> bool:
        affixes = affix if isinstance(affix, list) else [affix]
        return bool(getattr(value, test)(tuple(map(_text, affixes))))

    return has


def _found(search: str) -> Callable[..., int]:
    def at(value: str, what: Any) -> int:
        found: int = getattr(value, search)(_text(what))
        return len(value[:found].encode()) if found >= 0 else found  # Rust counts bytes

    return at


def _replace(value: str, old: Any, new: Any, count: Any = None) -> str:
    return value.replace(_text(old), _text(new), -1 if _absent(count) else _count(count))


def _count_of(value: str, what: Any) -> int:
    if not _text(what):
        unknown("count of an empty text")
    return value.count(what)


def _join(value: str, values: Any) -> str:
    if not isinstance(values, list):
        unknown(f"join of {type(values).__name__}")
    return value.join(map(text, values))


def _splitlines(value: str, keepends: Any = None) -> list[str]:
    if not _absent(keepends):
        unknown("splitlines with line ends")
    lines = value.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _split(value: str, separator: Any = None, most: Any = None) -> list[str]:
    if _absent(most) and _absent(separator):
        return [piece for piece in value.translate(_SPACES).split(" ") if piece]
    if _absent(most) and separator == "":
        return ["", *value, ""]
    if _absent(separator) or not _text(separator):
        unknown("split by whitespace or by nothing, a few times")
    return value.split(separator, -1 if _absent(most) else _count(most))


def _get(value: dict[str, Any], key: Any, default: Any = None) -> Any:
    if not isinstance(key, str):
        unknown("get by what is no text")
    return value.get(key, default)


_METHODS: Final[Mapping[type, Mapping[str, Callable[..., Any]]]] = {
    str: {
        "capitalize": capitalized,
        "count": _count_of,
        "endswith": _affix("endswith"),
        "find": _found("find"),
        "isalnum": _all("isalnum"),
        "isalpha": _all("isalpha"),
        "isascii": str.isascii,
        "isdigit": _all("isdigit"),
        "islower": _all("islower"),
        "isspace": _all("isspace"),
        "isupper": _all("isupper"),
        "join": _join,
        "lower": lambda value: ascii_only(value, "lower").lower(),
        "lstrip": _strip("lstrip"),
        "replace": _replace,
        "rfind": _found("rfind"),
        "rstrip": _strip("rstrip"),
        "split": _split,
        "splitlines": _splitlines,
        "startswith": _affix("startswith"),
        "strip": _strip("strip"),
        "title": titled,
        "upper": lambda value: ascii_only(value, "upper").upper(),
    },
    dict: {
        "get": _get,
        "items": lambda value: Iterable([key, each] for key, each in value.items()),
        "keys": Iterable,
        "values": lambda value: Iterable(value.values()),
    },
}


def _absent(value: object) -> bool:
    return value is None or isinstance(value, Undefined)


def _text(value: object) -> str:
    if not isinstance(value, str):
        failed("value is not a string")
    return value


def _count(value: object) -> int:
    if type(value) is not int:
        unknown("a count that is no integer")
    return value
