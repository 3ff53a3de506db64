"""What the fields of a processor's file may hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, model_validator

from mmroute.errors import quoted
from mmroute.families.lookup import Ref, Strict
from mmroute.model_directory import JsonValue

_KINDS: Final[Mapping[str, tuple[str, Callable[[JsonValue], bool]]]] = {
    "missing": ("missing", lambda _: False),
    "written": ("there", lambda _: True),
    "needed": ("a value", lambda value: value is not None),
    "given": ("a value, or missing", lambda value: value is not None),
    "not_empty": ("a list of numbers", lambda value: value != []),
    "filled": ("a value and not empty, or missing", lambda value: value not in (None, [])),
    "channels": ("a number, or 3", lambda value: _channels(value) in (1, 3)),
}


class Condition(Strict):
    """What a field may hold: `values`, a `kind` or `forms`; or `values` and that it is there."""

    values: tuple[Any, ...] = ()
    """Any of these values, ``null`` for null."""
    kind: (
        Literal["missing", "written", "needed", "given", "not_empty", "filled", "channels"] | None
    ) = None
    """``missing``: not even null; ``written``: not missing; ``needed``: nor null; ``given``: not
    null; ``not_empty``: no empty list; ``filled``: nor null; ``channels``: a number, or one for
    each channel."""
    forms: tuple[str, ...] = ()
    """A size: the keys of an object, such as ``height width``; ``square`` where these must be
    equal; ``side`` or ``list``."""
    unless: str = ""
    """A switch beside the field. Where a file has it off, the field may hold anything."""
    beside: str = ""
    """A switch. Where it is true, the field must be there, and not null."""

    @model_validator(mode="before")
    @classmethod
    def _written_shortly(cls, written: object) -> object:
        if isinstance(written, str):
            return {"kind": written}
        return {"values": written} if isinstance(written, list) else written

    def holds(self, name: str, fields: Mapping[str, JsonValue]) -> bool:
        """Whether it is true of the field of a name among others."""
        if self.unless and not fields.get(self.unless, True):
            return True
        value = fields.get(name)
        if self.beside and value is None and fields.get(self.beside):
            return False
        if name not in fields:
            return self.kind not in ("written", "needed")
        if self.kind and not self.values:
            return _KINDS[self.kind][1](value)
        if self.forms:
            return _has_form(value, self.forms)
        value = "null" if value is None else value
        same = (type(value) is type(one) and value == one for one in self.values)
        return not self.values or any(same)

    def __str__(self) -> str:
        """What the field must be, for messages."""
        if self.forms:
            return f"of the form {' or '.join(self.forms)}"
        wanted = " or ".join(map(quoted, self.values))
        if self.kind and not wanted:
            return _KINDS[self.kind][0]
        return wanted or f"a value beside {self.beside}"


def by_field(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions, of which one may be of several fields.

    >>> by_field({"image_mean image_std": "filled"})
    {'image_mean': 'filled', 'image_std': 'filled'}
    """
    return {name: what for names, what in conditions.items() for name in names.split()}


Conditions = Annotated[Mapping[Ref, Condition], BeforeValidator(by_field)]


def _channels(value: JsonValue) -> int:
    return len(value) if isinstance(value, list) else int(value is not None)


def _has_form(size: JsonValue, forms: Collection[str]) -> bool:
    """Whether a size of transformers is one of the forms of a processor's table."""
    if isinstance(size, Mapping):
        form, sides = " ".join(sorted(size)), [*size.values()]
        if "square" in forms and form == "height width" and len({*map(str, sides)}) == 1:
            form = "square"
    elif isinstance(size, list):
        form, sides = "list" if len(size) == 2 else "", size  # noqa: PLR2004 - height and width
    else:
        form, sides = "side", [size]
    return form in forms and all(type(side) is int and side > 0 for side in sides)
