"""Checks the bodies of routes, and turns pydantic's errors into vLLM's.

Source: vLLM ``entrypoints/serve/exception_handling/handlers/validation.py``.
"""

from __future__ import annotations

import functools
from typing import Any, Final, Generic, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from mmroute.engines.vllm.bodies.errors import BodyError, invalid_body, unsupported_field
from mmroute.engines.vllm.bodies.fields import AnyResponseFormat, ChatCompletionNamedToolChoiceParam
from mmroute.engines.vllm.bodies.tokenization import TokenizeRequest

T = TypeVar("T")

_MOST_ERRORS: Final = 10
_LONGEST_INPUT: Final = 200
_LONGEST_ERROR: Final = 1000
# Parts of a location that name no field but a type.
_BRANCHES: Final = frozenset({
    "str", "int", "float", "bool", "bytes", "list", "dict", "none", "nullable",
    ChatCompletionNamedToolChoiceParam.__name__,
    *(kind.__name__ for kind in (*get_args(AnyResponseFormat), *get_args(TokenizeRequest))),
})  # fmt: skip
_BRACKETS: Final = frozenset("[](){}")
_MISSING: Final = {"type": "missing", "loc": (), "msg": "Field required", "input": None}
_COLLECTIONS: Final = ("dict", "list")
_NO_FIELDS: Final = frozenset[str]()


class Schema(Generic[T]):
    """The schema for the bodies of a route.

    Args:
        kind: the class of the requests, or a union of several.
        unknown: the fields that an earlier release ignores.
        refused: the fields that an earlier release reads, and mmroute does not.
        lenient: the fields of which the frontend takes values that the newest one refuses.
    """

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
        self._core_schema = adapter.core_schema
        self._validator = adapter.validator  # without pydantic's own checks of arguments
        self._unknown = unknown
        self._refused = refused
        self._lenient = lenient

    def request(self, body: object, *, long: bool) -> T:
        """Parse a body.

        Args:
            body: the JSON value of the body; None if the body is empty.
            long: whether to check each list and object only up to its first error. vLLM lists all
                errors, which takes seconds for a long list, and no other request is answered
                meanwhile.

        Raises:
            BodyError: the body is not valid; the message and `param` are vLLM's. 422
                `unsupported_field`.
        """
        if body is None:
            raise invalid_fields([_MISSING])
        if (self._unknown or self._refused) and isinstance(body, dict):
            body = self._as_known(body)
        validator = self._up_to_first_errors if long else self._validator
        try:
            request: T = validator.validate_python(body, from_attributes=True)  # as FastAPI does
        except ValidationError as error:
            raise invalid_fields(error.errors(include_url=False)) from None
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

    @functools.cached_property
    def _up_to_first_errors(self) -> SchemaValidator:
        changed = _failing_fast(self._core_schema)
        # Or it takes the validators that the classes within it have, which are the other ones.
        return SchemaValidator(changed, _use_prebuilt=False)


def _failing_fast(schema: Any) -> Any:
    """A schema of pydantic's core that checks each collection only up to its first error."""
    if isinstance(schema, dict):
        changed = {key: _failing_fast(value) for key, value in schema.items()}
        return changed | {"fail_fast": True} if schema.get("type") in _COLLECTIONS else changed
    if isinstance(schema, list | tuple):
        return type(schema)(map(_failing_fast, schema))
    return schema


def invalid_fields(errors: list[Any]) -> BodyError:
    """The error of vLLM for wrong fields, from the errors that pydantic lists."""
    label = "error" if len(errors) == 1 else "errors"
    lines = [f"{len(errors)} validation {label}:", *map(_line, errors[:_MOST_ERRORS])]
    if len(errors) > _MOST_ERRORS:
        lines.append(f"...and {len(errors) - _MOST_ERRORS} more {label}")
    return invalid_body("\n  ".join(lines), _location(errors[0]["loc"]))


def _line(error: dict[str, Any]) -> str:
    text = str({**error, "loc": _location(error["loc"]), "input": _input(error["input"])})
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}...[truncated]"


def _location(location: tuple[int | str, ...]) -> str:
    return ".".join(["body", *(str(part) for part in location if not _is_branch(str(part)))])


def _is_branch(part: str) -> bool:
    return part in _BRANCHES or not _BRACKETS.isdisjoint(part)


def _input(value: object) -> str:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    try:
        text = str(value)
    except ValueError:  # an integer of too many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT]}...[truncated]"
