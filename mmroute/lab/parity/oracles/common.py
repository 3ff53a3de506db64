"""Errors and functions that all oracles share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from mmroute.errors import MmrouteError, Reason
from mmroute.geometry import EmbedRuns
from mmroute.lab.parity.cases import Outcome, Range, UndecidedError

_T = TypeVar("_T")

_LONGEST_REFUSAL: Final = 160
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")


class OracleError(MmrouteError):
    """An oracle cannot be used; the message names the oracle and the remedy."""

    def __init__(self, message: str, reason: Reason = Reason.ORACLE_UNAVAILABLE) -> None:
        super().__init__(reason, message)


def validated(kind: type[_T], value: Mapping[str, Any], where: str) -> _T:
    """An object of a file, with its fields checked."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise OracleError(f"{where}: {error}", Reason.MALFORMED_FILE) from error


def answered(
    token_ids: Iterable[int],
    ranges: Sequence[Range] | None,
    features: Sequence[EmbedRuns | None] | None = None,
) -> Outcome:
    """The outcome with token IDs, and with ranges by position if they are known."""
    ids = np.fromiter(token_ids, dtype=np.uint32)
    if ranges is None:
        return Outcome(token_ids=ids)
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    return Outcome(
        token_ids=ids,
        ranges=tuple(ranges[k] for k in order),
        features=None if features is None else tuple(features[k] for k in order),
    )


def refused(message: object) -> Outcome:
    """The outcome of a refusal, with the first words of its message."""
    return Outcome(refusal=str(message)[:_LONGEST_REFUSAL])


def ask(call: Callable[[], Outcome], *no_refusals: type[Exception]) -> Outcome:
    """The outcome of a call of other libraries, in which nearly any exception is a refusal."""
    try:
        return call()
    except UndecidedError:
        raise
    except Exception as error:
        if isinstance(error, (ImportError, MemoryError, *no_refusals)):
            raise UndecidedError(f"no refusal, but {type(error).__name__}: {error}") from error
        return refused(_ADDRESS.sub("", f"{type(error).__name__}: {error}"))


def given(request: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The named fields that a request has, without null values."""
    return {name: request[name] for name in names if request.get(name) is not None}


def prompt_field(request: Mapping[str, Any]) -> str:
    """The one field of ``messages``, ``prompt`` and ``prompt_token_ids`` that a request has."""
    found = given(request, "messages", "prompt", "prompt_token_ids")
    if len(found) != 1:
        raise UndecidedError(
            "the request does not have exactly one of messages, prompt and prompt_token_ids"
        )
    return next(iter(found))
