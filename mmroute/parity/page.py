"""A validation as one page that needs nothing else: the tokens of both sides, aligned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import groupby, starmap, zip_longest
from typing import Any, Final

from jinja2 import Environment

from mmroute.parity.cases import Outcome
from mmroute.parity.comparison import Finding
from mmroute.parity.report import (
    MEANINGS,
    Report,
    by_kind,
    groups_of,
    meaning_of,
    shared_alternatives,
    verdict_of,
)

__all__ = ["as_page"]

_BEFORE: Final = 3  # columns shown before the first difference
_COLUMNS: Final = 60
_LONGEST_REQUEST: Final = 4000


@dataclass(frozen=True, slots=True)
class _Run:
    """A token that stands so often in a row."""

    id: int
    count: int
    at: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class _Column:
    """What the two sides have at the same place of the aligned answers; None for nothing."""

    ours: _Run | None
    theirs: _Run | None

    @property
    def same(self) -> bool:
        ours, theirs = self.ours, self.theirs
        if ours is None or theirs is None:
            return False
        return (ours.id, ours.count) == (theirs.id, theirs.count)


def as_page(report: Report) -> str:
    """The report as HTML."""
    environment = Environment(autoescape=True, trim_blocks=True)
    template = environment.from_string(
        (files("mmroute.parity") / "page.html").read_text(encoding="utf-8")
    )
    return template.render(
        title=f"{report.model} ({report.family}) against {report.oracle}",
        report=report,
        verdict=verdict_of(report),
        meanings={verdict.value: meaning for verdict, meaning in MEANINGS.items()},
        kinds=by_kind(report.findings),
        known=report.known_differences if report.parity is False else (),
        groups=[
            (
                title,
                meaning_of(findings),
                shared_alternatives(findings),
                [_finding(finding, report) for finding in findings],
            )
            for title, findings in groups_of(report.findings)
        ],
    )


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    request = json.dumps(finding.case.request, ensure_ascii=False, indent=1, default=str)
    found: dict[str, Any] = {
        "id": finding.case.id,
        "note": finding.note,
        "explanation": finding.diagnosis.explanation if finding.diagnosis else "",
        "request": request[:_LONGEST_REQUEST],
        "columns": [],
    }
    if finding.diagnosis is None or finding.theirs is None:
        return found
    answers = {"mmroute": finding.ours, "oracle": finding.theirs}
    found["refusals"] = {n: a.refusal for n, a in answers.items() if a.token_ids is None}
    ours, theirs = _runs(finding.ours, report), _runs(finding.theirs, report)
    pairs = zip_longest(ours, theirs)
    first = next((n for n, pair in enumerate(pairs) if not _Column(*pair).same), 0)
    start = max(0, first - _BEFORE)
    window = slice(start, start + _COLUMNS)
    found |= {
        "columns": list(_aligned(ours[window], theirs[window])),
        "first": first - start,
        "before": sum(run.count for run in ours[:start]),
        "more": max(len(ours), len(theirs)) > window.stop,
    }
    return found


def _aligned(ours: list[_Run], theirs: list[_Run]) -> Iterator[_Column]:
    """Equal tokens beside each other again behind what one side has more."""
    if not ours or not theirs:  # one of them refuses
        yield from (_Column(run, None) for run in ours)
        yield from (_Column(None, run) for run in theirs)
        return
    ids = [run.id for run in ours], [run.id for run in theirs]
    matcher = SequenceMatcher(None, *ids, autojunk=False)
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        yield from starmap(_Column, zip_longest(ours[a:a_end], theirs[b:b_end]))


def _runs(answer: Outcome, report: Report) -> list[_Run]:
    if answer.token_ids is None:
        return []
    tokenizer = report.tokenizer
    special = set(map(tokenizer.token_id, tokenizer.named_tokens))
    inside = {i for offset, length in answer.ranges or () for i in range(offset, offset + length)}
    numbered = enumerate(answer.token_ids.tolist())
    found = []
    for (token_id, in_item), run in groupby(numbered, lambda pair: (pair[1], pair[0] in inside)):
        positions = [position for position, _ in run]
        kind = "item" if in_item else "special" if token_id in special else "text"
        text = _text(report, token_id)
        found.append(_Run(token_id, len(positions), positions[0], text, kind))
    return found


def _text(report: Report, token_id: int) -> str:
    try:
        return report.tokenizer.decode([token_id])
    except (ValueError, KeyError, OverflowError, IndexError):  # not an ID of this tokenizer
        return "?"
