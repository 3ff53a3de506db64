"""A validation as one page that needs nothing else: token strips of both sides, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment

from mmroute.parity.cases import Outcome
from mmroute.parity.comparison import Finding, Verdict
from mmroute.parity.report import (
    Report,
    by_kind,
    groups_of,
    meaning_of,
    shared_alternatives,
    verdict_of,
)

__all__ = ["as_page"]

_BEFORE: Final = 5  # tokens shown before the first difference: it is in view without scrolling
_AFTER: Final = 60
_LONGEST_REQUEST: Final = 4000


@dataclass(frozen=True, slots=True)
class _Token:
    id: int
    at: int
    text: str
    kind: str
    first: bool


def as_page(report: Report) -> str:
    """The report as HTML."""
    environment = Environment(autoescape=True, trim_blocks=True)
    template = environment.from_string(
        (files("mmroute.parity") / "page.html").read_text(encoding="utf-8")
    )
    return template.render(
        title=f"{report.model} ({report.family}) against {report.oracle}",
        verdict=verdict_of(report),
        verdicts=[verdict.value for verdict in Verdict],
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
    sides = []
    if finding.diagnosis is not None and finding.theirs is not None:
        at = finding.diagnosis.first_difference
        sides = [
            _side("mmroute", finding.ours, at, report),
            _side("oracle", finding.theirs, at, report),
        ]
    return {
        "id": finding.case.id,
        "note": finding.note,
        "explanation": finding.diagnosis.explanation if finding.diagnosis else "",
        "request": request[:_LONGEST_REQUEST],
        "sides": sides,
    }


def _side(name: str, answer: Outcome, at: int, report: Report) -> dict[str, Any]:
    if answer.token_ids is None:
        return {"name": name, "refusal": answer.refusal, "tokens": []}
    count = len(answer.token_ids)
    start, stop = max(0, at - _BEFORE), min(count, at + _AFTER)
    return {
        "name": name,
        "before": start,
        "tokens": list(_tokens(answer, start, stop, at, report)),
        "ended": at >= count,
        "after": count - stop,
    }


def _tokens(answer: Outcome, start: int, stop: int, at: int, report: Report) -> Iterator[_Token]:
    if answer.token_ids is None:
        return
    tokenizer = report.tokenizer
    special = set(map(tokenizer.token_id, tokenizer.named_tokens))
    inside = {i for offset, length in answer.ranges or () for i in range(offset, offset + length)}
    for position, token_id in enumerate(answer.token_ids[start:stop].tolist(), start):
        kind = "special" if token_id in special else "text"
        yield _Token(
            id=token_id,
            at=position,
            text=_text(report, token_id),
            kind="image" if position in inside else kind,
            first=position == at,
        )


def _text(report: Report, token_id: int) -> str:
    try:
        return report.tokenizer.decode([token_id])
    except (ValueError, KeyError, OverflowError, IndexError):  # not an ID of this tokenizer
        return "?"
