"""One argument of a request that changes how items are counted: its value, place and effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from mmroute.geometry.known_arguments import (
    is_count,
    is_positive,
    is_switch,
)
from mmroute.geometry.unlisted_arguments import refused


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
    EMPTY = "empty"
    """An object, or a list, that holds nothing."""
    ANY = "any"
    """Any value."""


class Where(StrEnum):
    """The places of an argument: flat, or inside the object of its modality (`images_kwargs`)."""

    ANYWHERE = "anywhere"
    """In both places; the one inside wins."""
    FLAT_COUNTS = "flat_counts"
    """In both places. The engine counts by the flat one, and drops it where it is repeated
    inside."""
    FLAT_COUNTS_ALONE = "flat_counts_alone"
    """As `flat_counts`, but a flat one is refused beside anything inside."""
    FLAT_READ = "flat_read"
    """In both places, but the processor does not read the one inside."""
    ALONE = "alone"
    """Flat, and only where nothing is inside: the engine reads it in two places."""
    FLAT = "flat"
    """Flat; refused inside."""
    OUTSIDE = "outside"
    """Flat; refused inside the object of any modality, because the engine gives each its own."""
    INSIDE = "inside"
    """Inside; refused flat."""
    NOWHERE = "nowhere"
    """In no place: the argument makes the processor fail, or was not observed."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of requests.

    Attributes:
        sets: the grid's numbers that it changes. Without them the argument is only checked.
        kind: the kind of value that the argument has.
        one_of: the values that the argument may have, in place of a kind.
        flat_one_of: the values that a flat argument may have, in place of a kind.
        most: the largest count. No context holds more.
        where: the places where it may stand.
        without: another argument that must be absent.
        keys: the sets of keys that an object of counts may have, each as one text such as
            ``height width``. A ``side`` is a count in place of the object.
        edges: key -> the grid's number that it changes. An argument for this number itself wins.
        complete: whether all edges must be given, by the object or by arguments for their numbers.
        clears: key -> the grid's switch that is off if the object has the key.
        square: whether height and width must be equal.
        edges_are_arguments: whether each edge becomes an argument with the name of the grid's
            number, before the engine's own arguments are merged in.
        named: whether the identities of items cover the argument. Some processors remove it before
            identities are made.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    sets: tuple[str, ...] = ()
    kind: Kind | None = None
    one_of: tuple[Any, ...] = ()
    flat_one_of: tuple[Any, ...] = ()
    most: int | None = None
    where: Where = Where.ANYWHERE
    without: str | None = None
    keys: tuple[str, ...] = ()
    edges: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    clears: Mapping[str, str] = field(default_factory=dict)
    square: bool = False
    edges_are_arguments: bool = False
    named: bool = True

    @property
    def changed_fields(self) -> set[str]:
        """The numbers of the grid that the argument may change."""
        return {*self.sets, *self.edges.values(), *self.clears.values()}

    def of_type(self, types: Mapping[str, Any]) -> Argument:
        """The argument with the kind of the number that it changes: a switch for a boolean."""
        if self.kind is None and self.sets and types[self.sets[0]] is bool:
            return replace(self, kind=Kind.SWITCH)
        return self

    def check(self, name: str, value: object) -> None:
        """Refuse a value that the argument must not have."""
        if self.one_of:
            check_one_of(name, value, self.one_of)
        elif self.keys:
            self._check_object(name, value)
        else:
            wanted, accepts = _KINDS[self.kind or Kind.COUNT]
            if not accepts(value):
                raise refused(name, value, wanted)
            if self.most is not None and isinstance(value, int) and value > self.most:
                raise refused(name, value, f"at most {self.most}")

    def _check_object(self, name: str, value: object) -> None:
        if "side" in self.keys and is_count(value):
            return
        forms = [set(form.split()) for form in self.keys]
        if not isinstance(value, Mapping) or set(value) not in forms:
            raise refused(name, value, f"an object of {', or of '.join(self.keys)}")
        if not all(map(is_count, value.values())):
            raise refused(name, value, "of positive integers")
        if self.square and value["height"] != value["width"]:
            raise refused(name, value, "a square")

    def edge_changes(self, name: str, value: object, others: Collection[str]) -> dict[str, object]:
        """The numbers of the grid that a checked object changes.

        Args:
            name: the name of the argument.
            value: the object.
            others: the numbers that other arguments change.
        """
        if not isinstance(value, Mapping):
            return {}
        for edge, number in self.edges.items():
            if self.complete and edge not in value and number not in others:
                raise refused(name, value, f"with {edge}")
        edges = {number: value[edge] for edge, number in self.edges.items() if edge in value}
        return edges | {switch: False for key, switch in self.clears.items() if key in value}


_KINDS: Final[Mapping[Kind, tuple[str, Callable[[object], bool]]]] = {
    Kind.COUNT: ("a positive integer", is_count),
    Kind.SWITCH: ("true or false", is_switch),
    Kind.NULLABLE_SWITCH: ("true, false or null", lambda v: v is None or is_switch(v)),
    Kind.FLOAT: ("a number with a decimal point", lambda value: type(value) is float),
    Kind.POSITIVE_FLOAT: (
        "a positive number with a decimal point",
        lambda value: type(value) is float and value > 0,
    ),
    Kind.EMPTY: ("empty", lambda value: not value),
    Kind.NUMBER: ("a positive number", is_positive),
    Kind.ANY: ("anything", lambda _: True),
}


def check_one_of(name: str, value: object, known: Collection[object]) -> None:
    """Refuse a value that does not equal a known one in type and value."""
    if not any(type(value) is type(one) and value == one for one in known):
        raise refused(name, value, f"one of {', '.join(map(str, known))}")
