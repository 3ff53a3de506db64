"""Compares mmroute's answers with an oracle's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mmroute.answering.pipeline import answer
from mmroute.errors import InexactError
from mmroute.model.resolved import ResolvedModel
from mmroute.parity.cases import Case, Oracle, Outcome, UndecidedError
from mmroute.parity.causes import Diagnosis, Word
from mmroute.parity.diagnosis import diagnose
from mmroute.parity.identity_remedies import identities_of
from mmroute.requests.lines import request_of


class Verdict(Word):
    """The result of one comparison."""

    EQUAL = (
        "equal",
        "the same IDs, ranges, identities and hashes, as far as the oracle has them",
    )
    REFUSED = "refused", "both refuse the request, which proves nothing of the tokens"
    # A router would not notice it.
    SILENT = "silent", "mmroute's answer is exact, and differs from the oracle's"
    UNNEEDED = "unneeded", "the oracle answers, and mmroute does not"
    UNDECIDED = (
        "undecided",
        "the oracle does not know; for parity, at least as many answers must be equal",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One request, and both answers to it.

    Attributes:
        case: the request.
        ours: mmroute's answer.
        theirs: the oracle's answer; None if undecided.
        verdict: the result of the comparison.
        diagnosis: the cause of the difference; None if there is no difference.
        note: the reason why the oracle is undecided, or mmroute inexact; empty otherwise.
    """

    case: Case
    ours: Outcome
    theirs: Outcome | None
    verdict: Verdict
    diagnosis: Diagnosis | None = None
    note: str = ""


def compare(model: ResolvedModel, oracle: Oracle, cases: Iterable[Case]) -> Iterator[Finding]:
    """Compare case by case; each finding is yielded as soon as it is known."""
    engine_model = "" if oracle.running is None else oracle.running.model_string
    arguments_found: list[Mapping[str, Any]] = []
    for case in cases:
        ours = our_outcome(model, case)
        try:
            theirs = oracle.answer(case)
        except UndecidedError as undecided:
            yield Finding(case, ours, None, Verdict.UNDECIDED, note=str(undecided))
            continue
        if theirs.identities is not None:
            ours = replace(ours, identities=identities_of(model, case))
        if ours.same(theirs):
            refused = theirs.token_ids is None
            yield Finding(case, ours, theirs, Verdict.REFUSED if refused else Verdict.EQUAL)
        elif ours.token_ids is None:
            yield Finding(case, ours, theirs, Verdict.UNNEEDED, note=ours.refusal or "")
        else:
            diagnosis = diagnose(
                model,
                case,
                ours,
                theirs,
                arguments_found=arguments_found,
                engine_model=engine_model,
            )
            yield Finding(case, ours, theirs, Verdict.SILENT, diagnosis)


def our_outcome(model: ResolvedModel, case: Case) -> Outcome:
    """The outcome of a case in mmroute."""
    try:
        routing = answer(model, request_of(dict(case.request)))
        ranges = tuple((p.offset, p.length) for p in routing.placeholders)
        return Outcome(routing.token_ids, ranges)
    except InexactError as inexact:
        return Outcome(refusal=f"{inexact.reason}: {inexact}")
