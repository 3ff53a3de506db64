"""The arguments of a request that change how its items are counted (`mm_processor_kwargs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

from mmroute.errors import InexactError, argument_refused
from mmroute.requests.items import Modality

_Grid = TypeVar("_Grid")

OBJECTS: Final = {
    "images_kwargs": Modality.IMAGE,
    "videos_kwargs": Modality.VIDEO,
    "audio_kwargs": Modality.AUDIO,
}
"""The objects for arguments of one modality."""
_INT64: Final = 1 << 63


class Kind(StrEnum):
    """The kind of value that an argument must have."""

    COUNT = "count"
    """A positive integer."""
    SWITCH = "switch"
    """True or false."""
    NULLABLE_SWITCH = "nullable_switch"
    """True, false, or null for false."""
    FLOAT = "float"
    """A number with a decimal point."""
    POSITIVE_FLOAT = "positive_float"
    """A number above zero, with a decimal point."""
    NUMBER = "number"
    """A positive number."""


class Where(StrEnum):
    """The places of an argument: flat, or inside the object of its modality (`images_kwargs`)."""

    ANYWHERE = "anywhere"
    """In both places; the one inside wins."""
    FLAT = "flat"
    """Flat, and only where nothing is inside."""
    INSIDE = "inside"
    """Inside."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of requests.

    Attributes:
        sets: the grid's numbers that it changes. Without them the argument is only checked.
        kind: the kind of value that the argument has.
        one_of: the values that the argument may have, in place of a kind.
        most: the largest count. No context holds more.
        where: the places where it may stand.
        without: another argument that must be absent.
        edges: key -> the grid's number that it changes. The argument is an object of counts, with
            all of these keys.
        partial: whether the object may have some of these keys only.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    sets: tuple[str, ...] = ()
    kind: Kind | None = None
    one_of: tuple[Any, ...] = ()
    most: int | None = None
    where: Where = Where.ANYWHERE
    without: str | None = None
    edges: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False

    @property
    def changed_fields(self) -> set[str]:
        """The numbers of the grid that the argument may change."""
        return {*self.sets, *self.edges.values()}

    def of_type(self, types: Mapping[str, Any]) -> Argument:
        """The argument with the kind of the number that it changes: a switch for a boolean."""
        if self.kind is None and self.sets and types[self.sets[0]] is bool:
            return replace(self, kind=Kind.SWITCH)
        return self

    def changes(self, name: str, value: object) -> Mapping[str, object]:
        """The numbers of the grid that a value changes; one that is not covered is refused."""
        if self.edges:
            return self._edge_changes(name, value)
        if self.one_of:
            if not any(type(value) is type(one) and value == one for one in self.one_of):
                raise _refused(name, value, f"one of {', '.join(map(str, self.one_of))}")
        else:
            wanted, accepts = _KINDS[self.kind or Kind.COUNT]
            if not accepts(value):
                raise _refused(name, value, wanted)
            if self.most is not None and isinstance(value, int) and value > self.most:
                raise _refused(name, value, f"at most {self.most}")
        return dict.fromkeys(self.sets, False if value is None else value)

    def _edge_changes(self, name: str, value: object) -> Mapping[str, object]:
        keys = value.keys() & self.edges.keys() if isinstance(value, Mapping) else set()
        whole = keys and (self.partial or len(keys) == len(self.edges))
        if not isinstance(value, Mapping) or not whole or len(value) > len(keys):
            raise _refused(name, value, f"an object of {' '.join(self.edges)}")
        if not all(map(_is_count, value.values())):
            raise _refused(name, value, "of positive integers")
        return {self.edges[edge]: count for edge, count in value.items()}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of requests that a family's processors take.

    Attributes:
        modality: the modality of the items to be counted.
        listed: the arguments of each modality, by name.
    """

    modality: Modality
    listed: Mapping[Modality, Mapping[str, Argument]]

    @property
    def named(self) -> Mapping[str, Argument]:
        """The arguments of these items."""
        return self.listed[self.modality]

    def applied(self, grid: _Grid, kwargs: Mapping[str, Any]) -> _Grid:
        """A grid with the numbers that a request changes."""
        changes = self._changes(kwargs)
        if not changes:
            return grid
        try:
            return replace(grid, **changes)  # type: ignore[type-var]  # grids are dataclasses
        except ValueError as error:
            given = ", ".join(f"{name} {value}" for name, value in changes.items())
            raise _refused("*", given, str(error)) from error

    def _changes(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        flat = {name: value for name, value in kwargs.items() if name not in OBJECTS}
        inside: Mapping[str, Any] = {}
        for scope in OBJECTS.keys() & kwargs.keys():
            self._check_object(scope, kwargs[scope])
            if OBJECTS[scope] is self.modality:
                inside = kwargs[scope]
            elif flat:
                raise _refused(scope, kwargs[scope], "absent beside others: the engine drops some")
        for name, value in flat.items():
            argument = self.named.get(name)
            if argument is None or argument.where is Where.INSIDE:
                raise _refused(name, value, f"absent for {self.modality}s of this model")
            if argument.where is Where.FLAT and inside:
                raise _refused(name, value, "given without arguments inside an object")
            argument.changes(name, value)
        given = {**flat, **inside}
        merged: dict[str, Any] = {}
        for name, value in given.items():
            changes = self.named[name].changes(name, value)
            if self.named[name].without in given or changes.keys() & merged.keys():
                raise _refused(name, value, "the only argument of its kind")
            merged |= changes
        return merged

    def _check_object(self, scope: str, value: object) -> None:
        """Refuse an object of arguments that no processor reads, or what is not listed in it."""
        listed = self.listed.get(OBJECTS[scope], {})
        taken = {name: one for name, one in listed.items() if one.where is not Where.FLAT}
        if not taken or not isinstance(value, Mapping):
            raise _refused(scope, value, "an object" if taken else "absent for this model")
        for name, one in value.items():
            if name not in taken:
                raise _refused(f"{scope}.{name}", one, "absent for this model")
            taken[name].changes(f"{scope}.{name}", one)


def _is_count(value: object) -> bool:
    """Whether a value is a positive integer that the processors' own arithmetic can hold."""
    return type(value) is int and 0 < value < _INT64


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


_KINDS: Final[Mapping[Kind, tuple[str, Callable[[object], bool]]]] = {
    Kind.COUNT: ("a positive integer", _is_count),
    Kind.SWITCH: ("true or false", _is_switch),
    Kind.NULLABLE_SWITCH: ("true, false or null", lambda v: v is None or _is_switch(v)),
    Kind.FLOAT: ("a number with a decimal point", lambda value: type(value) is float),
    Kind.POSITIVE_FLOAT: (
        "a positive number with a decimal point",
        lambda value: type(value) is float and value > 0,
    ),
    Kind.NUMBER: (
        "a positive number",
        lambda value: isinstance(value, int | float) and not _is_switch(value) and value > 0,
    ),
}


def _refused(name: str, value: object, wanted: str) -> InexactError:
    """The error for a value that the engine refuses, or that was not observed."""
    return argument_refused(f"mm_processor_kwargs.{name}", value, wanted)
