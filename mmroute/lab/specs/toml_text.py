"""Writes data as TOML, in the layout of the family specs.

tomli_w cannot write a table within a table on one line, and tomlkit would keep the comments of the
tried family. Either would be a dependency of every installation for one rarely used command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(data: Mapping[str, Any]) -> str:
    r"""The TOML of a document, as `tomllib` reads it back.

    A table within a table is written on one line if it has no table in it.

    >>> table = {"n": [1, 2], "u": {"from": "y"}, "v": {"w": {}}}
    >>> print(toml_text({"a": "x\n", "t": table}), end="")
    a = "x\n"
    <BLANKLINE>
    [t]
    n = [1, 2]
    u = { from = "y" }
    <BLANKLINE>
    [t.v]
    w = {}
    """
    return "\n".join(_section((), data)).lstrip("\n") + "\n"


def _section(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a table with its heading, then those of the tables in it."""
    sections = {key: value for key, value in table.items() if _has_section(path, value)}
    if path and (len(sections) < len(table) or not table):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in table.items():
        if key not in sections:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in sections.items():
        yield from _section((*path, key), value)


def _has_section(path: tuple[str, ...], value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return not path or any(isinstance(inner, Mapping) for inner in value.values())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(of)}" for key, of in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's strings, numbers and booleans are valid TOML, except the character DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _value(key)
