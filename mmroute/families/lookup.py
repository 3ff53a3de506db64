"""The places from which a family spec reads a value or a token, and what they may hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from mmroute.errors import did_you_mean, quoted
from mmroute.model_directory import FieldRef, JsonValue

Ref = Annotated[
    FieldRef,
    BeforeValidator(lambda v: FieldRef.parse(v) if isinstance(v, str) else v),
    PlainSerializer(str),
]


def one_of(known: Collection[str]) -> Callable[[str], str]:
    """A check that refuses unknown names."""

    def check(name: str) -> str:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"{name!r} is not one of {', '.join(sorted(known))}{hint}")
        return name

    return check


class Strict(BaseModel):
    """A table of a spec, which may have only the declared fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Lookup(Strict):
    """The places from which a value is read: the first that has it counts, or else the default."""

    sources: tuple[Ref, ...] = Field(default=(), alias="from")
    """Places, in the order in which they are looked at."""
    default: Any = None
    """The value where no place has one. Without a default such a model is refused."""
    by_model_type: Mapping[int, tuple[str, ...]] = Field(default_factory=dict)
    """Default -> the model types that have it, in place of `default`. The type is that which stands
    beside the first of the places."""
    note: str = ""
    """The source of the default, such as a class of transformers."""
    names: Mapping[str, Any] = Field(default_factory=dict)
    """A text found in such a place, or in a list there -> its meaning. Without `names` a text means
    itself."""
    floats: bool = False
    """Whether a whole number may be written with a decimal point. The engine does not start with
    most such numbers."""
    signed: bool = False
    """Whether a number may be zero or below."""
    equals: tuple[Ref, ...] = ()
    """Places that, where present, must hold the same."""
    optional: bool = False
    """Whether the value may be missing without a default."""
    null: Any = "refused"
    """What null in such a place means: ``absent``, or a value that the engine takes it for. By
    default it is ``refused``: the engine does not start, or fails, with null in most fields."""

    def default_for(self, model_type: JsonValue) -> Any:
        """The default for a model of this type."""
        for default, types in self.by_model_type.items():
            if model_type in types:
                return default
        return self.default


Value = Annotated[
    Lookup, BeforeValidator(lambda v: v if isinstance(v, dict | Lookup) else {"default": v})
]
"""A lookup, or a constant written as it is."""


class TokenLookup(Strict):
    """A token, which is read as an ID or as a text of the vocabulary."""

    id: Value | None = None
    """The token's ID. Give this or the text."""
    text: Value | None = None
    """The token's text, which must be one token of the vocabulary."""
    equals: tuple[Ref, ...] = ()
    """Places that, where present, must give the same ID."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.id is None) == (self.text is None):
            raise ValueError("give exactly one of id and text")
        return self


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
