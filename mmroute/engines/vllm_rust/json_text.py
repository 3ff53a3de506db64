"""JSON as vLLM's Rust frontend writes it into prompts.

Source: vLLM ``rust/src/chat/src/renderer/hf/tojson.rs``; serde_json 1.0.149 (numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

COMPACT: Final[Mapping[str, Any]] = {"separators": [",", ":"]}
"""Options of `tojson` that leave out the spaces."""
_LEAST: Final = -1 << 63
_BEYOND: Final = 1 << 64  # serde_json has 64 bits for a number without a point


def tojson(value: Any, **options: Any) -> str:
    """The filter ``tojson``."""
    if options.keys() - {"ensure_ascii", "indent", "separators", "sort_keys"}:
        raise TypeError("unknown keyword argument of tojson")
    indent = _indent(options.get("indent"))
    item, key = _separators(options.get("separators"), pretty=indent is not None)
    ascii_only = _flag(options.get("ensure_ascii"))
    escape = encode_basestring_ascii if ascii_only else encode_basestring
    return _written(value, _Style(escape, _flag(options.get("sort_keys")), indent, item, key))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | None):
        raise TypeError("an option of tojson that is no boolean")
    return bool(value)


def _indent(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, int):
        return " " * value
    if not isinstance(value, str) or value.strip(" \t\n\r"):
        raise TypeError("invalid indent value for tojson")
    return value


def _separators(value: Any, *, pretty: bool) -> tuple[str, str]:
    if value is None:
        return ("," if pretty else ", "), ": "
    if not isinstance(value, list) or list(map(type, value)) != [str, str]:
        raise TypeError("invalid separators value for tojson")
    for text, sign in zip(value, ",:", strict=True):
        if text.strip(" \t\n\r") != sign:
            raise TypeError("invalid separators value for tojson")
    return value[0], value[1]


def _written(value: Any, style: _Style, depth: int = 0) -> str:
    if isinstance(value, str):
        return style.text(value)
    if isinstance(value, list):
        return style.framed("[]", [_written(each, style, depth + 1) for each in value], depth)
    if not isinstance(value, Mapping):
        return _scalar(value)
    pairs = sorted(value.items()) if style.sorts else value.items()
    members = [f"{style.text(k)}{style.key}{_written(v, style, depth + 1)}" for k, v in pairs]
    return style.framed("{}", members, depth)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if not _LEAST <= value < _BEYOND:
        raise ValueError("JSON number out of range")
    return str(value)


@dataclass(frozen=True, slots=True)
class _Style:
    """A style of writing JSON."""

    text: Callable[[str], str]  # writes a text
    sorts: bool  # whether members are in the order of their keys
    indent: str | None  # the indentation of each level, after a line break; None for one line
    item: str  # the text between two values
    key: str  # the text after a key

    def framed(self, ends: str, values: list[str], depth: int) -> str:
        """An array or object of written values."""
        if self.indent is None or not values:
            return f"{ends[0]}{self.item.join(values)}{ends[1]}"
        start = f"\n{self.indent * (depth + 1)}"
        body = f"{self.item}{start}".join(values)
        return f"{ends[0]}{start}{body}\n{self.indent * depth}{ends[1]}"


def float_text(value: float) -> str:
    """A number as serde_json writes it: with an exponent from 1e+16 on, and below 1e-5."""
    digits, _, exponent = repr(value).partition("e")
    if exponent == "-05":
        sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{digits}e{int(exponent):+d}" if exponent else digits
