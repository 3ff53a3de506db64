"""The places from which a family spec reads a value or a token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from mmroute.errors import did_you_mean
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
