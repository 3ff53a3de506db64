"""The sampling fields of a request that are made into something else.

Source: vLLM 0.33.0 ``sampling_params.py`` and ``entrypoints/generate/base/protocol.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from mmroute.errors import shown
from mmroute.server.errors import bad_request, wrong_field
from mmroute.server.fields import (
    Body,
    boolean,
    fits,
    integer,
    list_of,
    nullable,
    number,
    object_,
    read,
    read_nullable,
    text,
)

__all__ = [
    "read_extra_args", "read_logit_bias", "read_repetition_detection", "read_stop",
    "read_structured_outputs", "read_thinking_budget",
]  # fmt: skip

_MOST_STOPS: Final = 4
_JSON_SCHEMA: Final = "body.response_format.json_schema"
_UNLIMITED: Final = -1
_FEWEST_REPETITIONS: Final = 2
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1


def _schema(value: object, location: str) -> str | dict[str, Any]:
    if isinstance(value, str | dict):
        return value
    raise wrong_field(location, f"Input should be a string or an object, found {shown(value)}")


# In the engine's order; exactly one of the first ones, and `structural_tag`, must be set.
_STRUCTURED: Final[Mapping[str, tuple[Callable[[Any, str], object], object]]] = {
    "json": (nullable(_schema), None),
    "regex": (nullable(text), None),
    "choice": (nullable(list_of(text)), None),
    "grammar": (nullable(text), None),
    "json_object": (nullable(boolean), None),
    "disable_any_whitespace": (boolean, False),
    "disable_additional_properties": (boolean, False),
    "whitespace_pattern": (nullable(text), None),
    "structural_tag": (nullable(text), None),
}
_CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_OF_ENGINE: Final[dict[str, object]] = {"_backend": None, "_backend_was_auto": False}


def read_stop(given: object) -> list[str]:
    """A text, some texts, or nothing; as a list.

    Raises:
        ApiError: 400.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not all(isinstance(stop, str) for stop in given):
        raise wrong_field(
            "body.stop", f"Input should be a string or a list of strings: {shown(given)}"
        )
    if len(given) > _MOST_STOPS:
        raise wrong_field("body.stop", f"List should have at most {_MOST_STOPS} items")
    return given


def read_logit_bias(body: Body) -> dict[str, float] | None:
    """Token IDs to biases, within 100.

    Raises:
        ApiError: 400.
    """
    given = read_nullable(body, "logit_bias", object_)
    if given is None:
        return None
    biases = {key: number(value, f"body.logit_bias.{key}") for key, value in given.items()}
    wrong = [key for key in given if not fits(_python_integer, key)]
    if wrong:
        raise bad_request(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: "
            f"{shown(wrong)}",
            "logit_bias",
        )
    return {str(int(key)): min(100.0, max(-100.0, value)) for key, value in biases.items()}


def _python_integer(key: str, location: str) -> int:
    """As Python reads it, which is stricter than what stands for an integer in other fields."""
    try:
        return int(key)
    except ValueError:
        raise wrong_field(location, "Input should be a valid integer") from None


def read_structured_outputs(body: Body) -> dict[str, Any] | None:
    """Of `structured_outputs`, changed by `response_format`; with every key the engine has.

    Raises:
        ApiError: 400.
    """
    given = read_nullable(body, "structured_outputs", object_)
    overrides = _of_response_format(read_nullable(body, "response_format", object_))
    if given is None and not overrides:
        return None
    own = {
        name: read(given or {}, name, kind, default, where="body.structured_outputs")
        for name, (kind, default) in _STRUCTURED.items()
    }
    if given is not None:
        _check_constraints(own)
    own |= overrides
    _check_constraints(own)
    return own | _OF_ENGINE


def _check_constraints(own: Mapping[str, Any]) -> None:
    found = [name for name in _CONSTRAINTS if own[name] is not None]
    if len(found) != 1:
        raise bad_request(
            f"You must use one kind of structured outputs constraint, found {found or 'none'}"
        )


def _of_response_format(wanted: Mapping[str, Any] | None) -> dict[str, Any]:
    if wanted is None:
        return {}
    kind = wanted.get("type")
    if kind == "structural_tag":
        first = ("type", "format") if "format" in wanted else ("type", "structures", "triggers")
        return {"structural_tag": json.dumps({**{name: wanted[name] for name in first}, **wanted})}
    if kind not in ("text", "json_object", "json_schema"):
        raise wrong_field("body.response_format.type", f"unknown type {shown(kind)}")
    schema = read_nullable(wanted, "json_schema", object_, where="body.response_format")
    if schema is not None:
        if "name" not in schema:
            raise wrong_field(f"{_JSON_SCHEMA}.name", "Field required")
        read(schema, "name", text, "", where=_JSON_SCHEMA)
        read_nullable(schema, "description", text, where=_JSON_SCHEMA)
        read_nullable(schema, "schema", object_, where=_JSON_SCHEMA)
        read_nullable(schema, "strict", boolean, where=_JSON_SCHEMA)
    if kind == "json_object":
        return {"json_object": True}
    return {"json": (schema or {}).get("schema")} if kind == "json_schema" else {}


def read_repetition_detection(body: Body) -> dict[str, Any] | None:
    """With every key the engine has.

    Raises:
        ApiError: 400.
    """
    given = read_nullable(body, "repetition_detection", object_)
    if given is None:
        return None
    where = "body.repetition_detection"
    names = ("max_pattern_size", "min_pattern_size", "min_count")
    sizes = {name: read(given, name, integer, 0, where=where) for name in names}
    longest, shortest, count = sizes.values()
    if not 0 <= shortest <= longest:
        raise bad_request(
            "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= "
            f"max_pattern_size, found {sizes}"
        )
    if longest and count < _FEWEST_REPETITIONS:
        raise bad_request(f"min_count must be >= {_FEWEST_REPETITIONS}, found {count}")
    return sizes


def read_thinking_budget(body: Body) -> int | None:
    """Tokens for thinking; None for any number. Nothing stands for an integer here.

    Raises:
        ApiError: 400.
    """
    budget = body.get("thinking_token_budget")
    if budget is None or (type(budget) is int and budget == _UNLIMITED):
        return None
    if type(budget) is not int or budget < 0:
        name = "thinking_token_budget"
        raise bad_request(f"`{name}` must be a non-negative integer or -1 for unlimited.", name)
    return budget


def read_extra_args(body: Body) -> dict[str, Any] | None:
    """`vllm_xargs`, and a check of all that goes the same way to the engine.

    Raises:
        ApiError: 400.
    """
    given = read_nullable(body, "vllm_xargs", object_)
    found = {
        key: _extra_arg(value, f"body.vllm_xargs.{key}") for key, value in (given or {}).items()
    }
    pending: list[object] = [found, body.get("kv_transfer_params"), body.get("ec_transfer_params")]
    while pending:
        value = pending.pop()
        if isinstance(value, int) and not _LOWEST <= value <= _HIGHEST:
            raise bad_request(
                "extra_args integers must be between -2**63 and 2**64 - 1.", "extra_args"
            )
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return found or None


def _extra_arg(value: object, location: str) -> object:
    """A text, a number, or a list of them."""
    if isinstance(value, list):
        if all(isinstance(item, str | int | float) for item in value):
            return [_extra_arg(item, location) for item in value]
    elif isinstance(value, str | int | float):
        return int(value) if isinstance(value, bool) else value
    raise wrong_field(location, f"Input should be a string, a number or a list: {shown(value)}")
