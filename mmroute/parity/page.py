"""A validation as a self-contained HTML page, with the tokens of both sides aligned."""

from __future__ import annotations

import json
from typing import Any, Final

from mmroute.pages.alignment import aligned
from mmroute.pages.rendering import rendered
from mmroute.parity.comparison import Finding, Verdict
from mmroute.parity.report import (
    Report,
    by_kind,
    groups_of,
    meaning_of,
    shared_alternatives,
    verdict_of,
)

_LONGEST_REQUEST: Final = 4000


def as_page(report: Report) -> str:
    """The report as HTML."""
    return rendered(
        "parity/page.html",
        title=f"{report.model} ({report.family}) against {report.oracle}",
        report=report,
        verdict=verdict_of(report),
        meanings={verdict.value: verdict.meaning for verdict in Verdict},
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
        "refusals": {},
        "tokens": None,
    }
    if finding.diagnosis is None or finding.theirs is None:
        return found
    answers = {"mmroute": finding.ours, "oracle": finding.theirs}
    found["refusals"] = {n: a.refusal for n, a in answers.items() if a.token_ids is None}
    ours, theirs = answers.values()
    found["tokens"] = aligned(
        ours.token_ids, ours.ranges or (), theirs.token_ids, theirs.ranges or (), report.tokenizer
    )
    return found
