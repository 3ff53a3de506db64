"""One table of settings: a field of a dataclass says how it is named and described as an option."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, get_args, get_type_hints

_UNSET = (None, False, ())  # defaults that say nothing


def option(
    default: Any, text: str, *, group: str = "", secret: bool = False, **described: Any
) -> Any:
    """A field that is an option of ``mmroute serve``.

    Args:
        default: the value where nobody gives another one.
        text: what it is.
        group: the group of options in which ``--help`` shows it.
        secret: whether the value must not be written anywhere.
        described: `flag`, where it is not named as the field; `metavar` and `type` as of argparse.
    """
    metadata = {"text": text, "group": group, **described}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def add_options(settings: type, groups: Mapping[str, argparse._ActionsContainer]) -> None:
    """Add the options among the fields of a dataclass to the groups that they name."""
    for each, kind in _options(settings):
        described = {"help": _help(each), **_of_kind(each, kind)}
        groups[each.metadata["group"]].add_argument(_flag(each), **described)


def chosen(settings: type, arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a dataclass, as the options say."""
    values = dict[str, Any]()
    for each, kind in _options(settings):
        value = getattr(arguments, _flag(each).strip("-").replace("-", "_"))
        if _is_choice(kind):
            value = kind(value)
        values[each.name] = tuple(value) if isinstance(value, list) else value
    return values


def _options(settings: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The fields that are options, and their types."""
    hints = get_type_hints(settings)
    return ((each, hints[each.name]) for each in dataclasses.fields(settings) if each.metadata)


def _is_choice(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def _flag(each: dataclasses.Field[Any]) -> str:
    flag: str = each.metadata.get("flag", f"--{each.name.replace('_', '-')}")
    return flag


def _help(each: dataclasses.Field[Any]) -> str:
    text: str = each.metadata["text"]
    return text if each.default in _UNSET else f"{text} (default: %(default)s)"


def _of_kind(each: dataclasses.Field[Any], kind: Any) -> dict[str, Any]:
    """How argparse reads a value of this type."""
    if kind is bool:
        return {"action": "store_true"}
    if _is_choice(kind):
        return {"choices": [one.value for one in kind], "default": each.default.value}
    more = {name: each.metadata[name] for name in ("metavar", "type") if name in each.metadata}
    if isinstance(each.default, tuple):
        return {"action": "append", "default": [], **more}
    first = (*get_args(kind), kind)[0]  # of a union
    return {"type": first, "default": each.default, "metavar": "N", **more}
