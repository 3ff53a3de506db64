"""Asking mmroute and an oracle the same requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from mmroute.errors import InexactError
from mmroute.model.resolved import ResolvedModel
from mmroute.parity.answers import Answer, Case, Oracle, Undecided
from mmroute.parity.diagnosis import Diagnosis, diagnose
from mmroute.pipeline import answer
from mmroute.request_lines import request_of

__all__ = ["Finding", "Verdict", "compare", "our_answer"]


class Verdict(StrEnum):
    """What one comparison came to."""

    EQUAL = "equal"
    """The same IDs and ranges, or refused by both."""
    SILENT = "silent"
    """mmroute's answer is exact, and wrong: the worst there is."""
    UNNEEDED = "unneeded"
    """The oracle answers, and mmroute does not."""
    UNDECIDED = "undecided"
    """The oracle cannot tell."""


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One request, and what both said.

    Attributes:
        case: the request.
        ours: mmroute's answer.
        theirs: the oracle's; None if undecided.
        verdict: of the comparison.
        diagnosis: why they differ, where it can be told; None if they do not.
        note: why the oracle is undecided, or mmroute inexact; empty otherwise.
    """

    case: Case
    ours: Answer
    theirs: Answer | None
    verdict: Verdict
    diagnosis: Diagnosis | None = None
    note: str = ""


def compare(model: ResolvedModel, oracle: Oracle, cases: Iterable[Case]) -> Iterator[Finding]:
    """Each case's finding, as soon as it is known."""
    for case in cases:
        ours = our_answer(model, case)
        try:
            theirs = oracle.answer(case)
        except Undecided as undecided:
            yield Finding(case, ours, None, Verdict.UNDECIDED, note=str(undecided))
            continue
        if ours.same(theirs):
            yield Finding(case, ours, theirs, Verdict.EQUAL)
        elif ours.token_ids is None:
            yield Finding(case, ours, theirs, Verdict.UNNEEDED, note=ours.refusal or "")
        else:
            diagnosis = diagnose(model, case, ours, theirs)
            yield Finding(case, ours, theirs, Verdict.SILENT, diagnosis)


def our_answer(model: ResolvedModel, case: Case) -> Answer:
    """What mmroute says to a case."""
    try:
        routing = answer(model, request_of(dict(case.request)))
        ranges = tuple((p.offset, p.length) for p in routing.placeholders)
        return Answer(routing.token_ids, ranges)
    except InexactError as inexact:
        return Answer(refusal=f"{inexact.reason}: {inexact}")
