"""The sampling fields of a request that are made into something else.

Source: vLLM 0.33.0 ``sampling_params.py`` and ``entrypoints/generate/base/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.errors import shown
from mmroute.server.errors import bad_request, wrong_field
from mmroute.server.fields import Body, fits, integer, list_of, number, object_, read_nullable, text

__all__ = ["read_logit_bias", "read_repetition_detection", "read_stop", "read_structured_outputs"]

_MOST_STOPS: Final = 4
_STRUCTURED: Final[Mapping[str, Any]] = {
    "json": None, "regex": None, "choice": None, "grammar": None, "json_object": None,
    "disable_any_whitespace": False, "disable_additional_properties": False,
    "whitespace_pattern": None, "structural_tag": None, "_backend": None,
    "_backend_was_auto": False,
}  # fmt: skip


def read_stop(given: object) -> list[str]:
    """A text, some texts, or nothing; as a list.

    Raises:
        ApiError: 400.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    stops = list_of(text)(given, "body.stop")
    if len(stops) > _MOST_STOPS:
        raise wrong_field("body.stop", f"List should have at most {_MOST_STOPS} items")
    return stops


def read_logit_bias(body: Body) -> dict[str, float] | None:
    """Token IDs to biases, within 100.

    Raises:
        ApiError: 400.
    """
    given = read_nullable(body, "logit_bias", object_)
    if given is None:
        return None
    wrong = [key for key in given if not fits(integer, key)]
    if wrong:
        raise bad_request(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: "
            f"{shown(wrong)}",
            "logit_bias",
        )
    bias = {str(int(k)): number(v, f"body.logit_bias.{k}") for k, v in given.items()}
    return {key: min(100.0, max(-100.0, value)) for key, value in bias.items()}


def read_structured_outputs(body: Body) -> dict[str, Any] | None:
    """Of `structured_outputs`, or else of `response_format`; with every key the engine has.

    Raises:
        ApiError: 400.
    """
    given = read_nullable(body, "structured_outputs", object_)
    wanted = read_nullable(body, "response_format", object_)
    kind = None if wanted is None else wanted.get("type")
    own = {name: value for name, value in (given or {}).items() if name in _STRUCTURED}
    if wanted is not None and kind == "json_schema":
        schema = wanted.get("json_schema")
        if schema is None:
            raise bad_request(
                "When response_format type is 'json_schema', the 'json_schema' field must be "
                "provided.",
                "response_format",
            )
        own["json"] = object_(schema, "body.response_format.json_schema").get("schema")
    elif kind == "json_object":
        own["json_object"] = True
    elif kind not in (None, "text", "structural_tag"):
        raise wrong_field("body.response_format", f"unknown type {shown(kind)}")
    if sum(own.get(name) is not None for name in ("json", "regex", "choice")) > 1:
        raise bad_request("You can only use one kind of constraints for structured outputs.")
    return {**_STRUCTURED, **own} if own else None


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
    return {name: integer(given.get(name, 0), f"{where}.{name}") for name in names}
