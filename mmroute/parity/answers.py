"""What an engine, or mmroute, says to one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from mmroute.geometry import TokenIds

__all__ = ["Answer", "Case", "Oracle", "Range", "Undecided"]

Range: TypeAlias = tuple[int, int]
"""Offset and length of one image in the expanded prompt."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request to compare.

    Attributes:
        id: its name in the report.
        kind: what it tests, such as ``rounding``; the report counts by it.
        request: as ``mmroute tokens`` takes it, without id.
    """

    id: str
    kind: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Token IDs, or a refusal.

    Attributes:
        token_ids: the expanded prompt, shape (n,), uint32; None if the request is refused.
        ranges: where the images stand, by position; None if the oracle does not say.
        refusal: how the refusal begins; None if there are IDs.
    """

    token_ids: TokenIds | None = None
    ranges: tuple[Range, ...] | None = None
    refusal: str | None = None

    def same(self, other: Answer) -> bool:
        """Whether both say the same, as far as both say it. All refusals are alike."""
        if self.token_ids is None or other.token_ids is None:
            return self.token_ids is other.token_ids
        ranges_differ = None not in (self.ranges, other.ranges) and self.ranges != other.ranges
        return not ranges_differ and np.array_equal(self.token_ids, other.token_ids)


class Undecided(Exception):  # noqa: N818 - no error of anybody: the question has no answer here
    """An oracle cannot tell what the engine says to one request; the message says why."""


class Oracle(Protocol):
    """Whoever knows the right answers.

    Attributes:
        name: for the report, such as ``vllm``.
        version: what it was computed with, such as ``0.33.0``.
    """

    name: str
    version: str

    def answer(self, case: Case) -> Answer:
        """The right answer to one request.

        Raises:
            Undecided: it cannot be told.
        """
