"""What pydantic makes of what clients send, in the core's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from mmroute.errors import invalid, problem

T = TypeVar("T")


def object_of(name: str, /, config: Any = None, **fields: Any) -> Any:
    """The type of an object with these fields."""
    made: Any = TypedDict(name, fields)  # type: ignore[misc]  # the fields are values here
    return made if config is None else with_config(config)(made)


def list_of(entry: Any) -> Any:
    """The type of a list that is refused at its first wrong entry."""
    return Annotated[list[entry], Field(fail_fast=True)]


def judged(judge: Callable[[Any], T], value: object, where: str, member: str = "") -> T:
    """What pydantic makes of a value; `member` of a union is the one whose errors are told."""
    try:
        return judge(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        relevant = [e for e in errors if e["loc"][:1] == (member,)] or errors
        deepest = max(relevant, key=lambda e: len(e["loc"]))
        # Without the names of types, which pydantic puts between those of fields.
        place = [
            p for p in deepest["loc"] if isinstance(p, int) or (p.isidentifier() and p != member)
        ]
        raise invalid(problem({**deepest, "loc": (where, *place)})) from None
