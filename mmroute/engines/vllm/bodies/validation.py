"""Checks the bodies of routes."""

from __future__ import annotations

import itertools
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from mmroute.engines.vllm.bodies.errors import BodyError, invalid_body, unsupported_field

T = TypeVar("T")

_COLLECTIONS: Final = ("dict", "list")
_NO_FIELDS: Final = frozenset[str]()


class Schema(Generic[T]):
    """The schema for the bodies of a route."""

    def __init__(
        self,
        kind: Any,
        unknown: frozenset[str] = _NO_FIELDS,
        refused: frozenset[str] = _NO_FIELDS,
        lenient: frozenset[str] = _NO_FIELDS,
    ) -> None:
        # The largest classes defer their schemas to this place, where a server waits anyway.
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind.model_rebuild(_types_namespace={})
        adapter: TypeAdapter[T] = TypeAdapter(kind)
        adapter.rebuild(_types_namespace={})
        # Each list and object is checked up to its first error: to list all may take seconds, and
        # no other request is answered meanwhile. The classes' own validators would list them.
        schema = _failing_fast(adapter.core_schema)
        self._validator = SchemaValidator(schema, _use_prebuilt=False)
        self._unknown = unknown
        self._refused = refused
        self._lenient = lenient

    def request(self, body: object) -> T:
        """Parse a body."""
        if body is None:
            raise invalid_body("the body is empty", "body")
        if (self._unknown or self._refused) and isinstance(body, dict):
            body = self._as_known(body)
        try:
            request: T = self._validator.validate_python(
                body, from_attributes=True
            )  # as FastAPI does
        except ValidationError as error:
            raise _of_first(error) from None
        except BodyError as error:
            if error.param in self._lenient:
                raise unsupported_field(f"{error}, or is not covered") from None
            raise
        return request

    def _as_known(self, body: dict[str, Any]) -> dict[str, Any]:
        for name in self._refused & body.keys():
            if body[name]:
                raise unsupported_field(
                    f"{name}: this release of the engine reads it, and it is not covered",
                )
        return {name: value for name, value in body.items() if name not in self._unknown}


def _failing_fast(schema: Any) -> Any:
    """A schema of pydantic's core that checks each collection only up to its first error."""
    if isinstance(schema, dict):
        changed = {key: _failing_fast(value) for key, value in schema.items()}
        return changed | {"fail_fast": True} if schema.get("type") in _COLLECTIONS else changed
    if isinstance(schema, list | tuple):
        return type(schema)(map(_failing_fast, schema))
    return schema


def _of_first(errors: ValidationError) -> BodyError:
    """The error that names the field of the first of pydantic's."""
    first = errors.errors(include_url=False, include_input=False)[0]
    # Before the field, a location may name one of several types of bodies.
    names = (part for part in first["loc"] if isinstance(part, str) and part.islower())
    place = ".".join(["body", *itertools.islice((n for n in names if n.isidentifier()), 1)])
    return invalid_body(f"{place}: {first['msg']}", place)
