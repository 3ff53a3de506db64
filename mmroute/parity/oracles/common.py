"""What all oracles share: errors, and the making of outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from mmroute.errors import MmrouteError, Reason
from mmroute.parity.cases import Outcome, Range, UndecidedError

_LONGEST_REFUSAL: Final = 160
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")


class OracleError(MmrouteError):
    """An oracle cannot be used at all; the message names it and the remedy."""

    def __init__(self, message: str, reason: Reason = Reason.ORACLE_UNAVAILABLE) -> None:
        super().__init__(reason, message)


def answered(token_ids: Iterable[int], ranges: Iterable[Range] | None) -> Outcome:
    """An answer with token IDs; the ranges by position, None where they are not told.

    Raises:
        OverflowError: an ID is negative or does not fit 32 bits.
    """
    ids = np.fromiter(token_ids, dtype=np.uint32)
    return Outcome(token_ids=ids, ranges=None if ranges is None else tuple(sorted(ranges)))


def refused(message: object) -> Outcome:
    """An answer without; how the refusal begins."""
    return Outcome(refusal=str(message)[:_LONGEST_REFUSAL])


def ask(call: Callable[[], Outcome], *no_refusals: type[Exception]) -> Outcome:
    """The answer of other people's code, which refuses with almost any exception.

    Args:
        call: what asks it.
        no_refusals: exceptions by which it says something else, beside those of a machine that
            is not up to it.

    Raises:
        UndecidedError: it was raised there, or one of the exceptions that are no refusal.
    """
    try:
        return call()
    except UndecidedError:
        raise
    except Exception as error:
        if isinstance(error, (ImportError, MemoryError, *no_refusals)):
            raise UndecidedError(f"no refusal, but {type(error).__name__}: {error}") from error
        return refused(_ADDRESS.sub("", f"{type(error).__name__}: {error}"))


def unchecked(version: str, checked: Iterable[str]) -> str:
    """A version for the report, with what the family was checked on, where that is another.

    >>> unchecked("0.34.0", ["0.33.0"])
    '0.34.0 (the family was checked on 0.33.0)'
    """
    known = tuple(checked)
    if not known or version in known:
        return version
    return f"{version} (the family was checked on {', '.join(known)})"


def given(request: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields that a request has with a value."""
    return {name: request[name] for name in names if request.get(name) is not None}


def prompt_field(request: Mapping[str, Any]) -> str:
    """Which of ``messages``, ``prompt`` and ``prompt_token_ids`` a request has.

    Raises:
        UndecidedError: not exactly one of them.
    """
    found = given(request, "messages", "prompt", "prompt_token_ids")
    if len(found) != 1:
        raise UndecidedError(
            "the request has not exactly one of messages, prompt and prompt_token_ids"
        )
    return next(iter(found))
