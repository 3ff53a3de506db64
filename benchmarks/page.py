"""What RESULTS.md is made of: aims, and sections with tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmroute import Normalizer

__all__ = ["Aim", "Part", "Subject", "micro", "table"]

_MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class Aim:
    """One line of the first table.

    Attributes:
        what: is measured.
        measured: in words.
        target: likewise.
        met: None if it was not run.
    """

    what: str
    measured: str
    target: str
    met: bool | None

    def row(self) -> tuple[str, ...]:
        """The line, with its verdict."""
        verdict = {True: "met", False: "**missed**", None: "not run"}[self.met]
        return self.what, self.measured, self.target, verdict


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page.

    Attributes:
        title: its heading.
        lines: Markdown.
        aims: what it says about the targets.
        curves: what is drawn: title of the plot, then by name of a curve its points (x, y).
        not_run: peers that were to be in it, each with the reason.
    """

    title: str
    lines: Sequence[str]
    aims: Sequence[Aim] = ()
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    not_run: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that is measured, and how often.

    Attributes:
        directory: of the model.
        normalizer: as users get it.
        reference: without fast paths; every timed answer is compared with its.
        whole: fastokens without the cache of texts; None where it does not fit the model.
        repeat: requests for each number.
        say: tells people who wait.
    """

    directory: Path
    normalizer: Normalizer
    reference: Normalizer
    whole: Normalizer | None
    repeat: int
    say: Callable[[str], None]

    @property
    def name(self) -> str:
        """The model's, without where it lies."""
        return self.directory.name


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; all columns but the first are numbers or short."""
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def micro(microseconds: float) -> str:
    """A time with its unit, in three digits.

    >>> micro(12.34), micro(1234), micro(56789), micro(2_000_000)
    ('12.3 us', '1.23 ms', '56.8 ms', '2.00 s')
    """
    for limit, unit in ((_MILLI, "us"), (_MILLI**2, "ms"), (_MILLI**3, "s")):
        if microseconds < limit:
            value = microseconds / (limit / _MILLI)
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{microseconds / _MILLI**2:.0f} s"
