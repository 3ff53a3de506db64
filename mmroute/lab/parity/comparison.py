"""Compares mmroute's answers with an oracle's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.answering.pipeline import answer
from mmroute.errors import InexactError
from mmroute.lab.parity.cases import Case, Oracle, Outcome, UndecidedError, merged_runs
from mmroute.lab.parity.causes import Cause, Diagnosis, Word
from mmroute.lab.parity.diagnosis import diagnose
from mmroute.lab.parity.identity_remedies import identities_of
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of

_FOREIGN_TEMPLATE: Final = (
    " Prompts of text have the oracle's token IDs, and no chat of text has: the chat template is "
    "another one. Give the engine's with --chat-template FILE in --engine-args."
)


class Verdict(Word):
    """The result of one comparison."""

    EQUAL = (
        "equal",
        "the same IDs, ranges, features, identities and hashes, as far as both sides have them",
    )
    NO_BLOCK = "no_block", "the same IDs, and no block was announced whose hash was compared"
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


def with_foreign_template(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, where a chat template is the cause if all chats of text differ and no prompt.

    Such a template is in no file of the model, so no setting that was tried explains one chat.
    """
    answered = [f for f in findings if f.theirs is not None and f.theirs.token_ids is not None]
    texts = [f for f in answered if not f.case.modalities]
    prompts = {f.verdict for f in texts if isinstance(f.case.request.get("prompt"), str)}
    chats = {f.verdict for f in texts if "messages" in f.case.request}
    if prompts != {Verdict.EQUAL} or chats != {Verdict.SILENT}:
        return tuple(findings)
    return tuple(map(_of_foreign_template, findings))


def _of_foreign_template(finding: Finding) -> Finding:
    found = finding.diagnosis
    if found is None or found.cause is not Cause.OTHER or "messages" not in finding.case.request:
        return finding
    why = found.explanation + _FOREIGN_TEMPLATE
    return replace(finding, diagnosis=replace(found, cause=Cause.TEMPLATE, explanation=why))


def our_outcome(model: ResolvedModel, case: Case) -> Outcome:
    """The outcome of a case in mmroute."""
    try:
        routing = answer(model, request_of(dict(case.request)))
        ranges = tuple((p.offset, p.length) for p in routing.placeholders)
        features = tuple(
            merged_runs(p.embed_runs or [(True, p.length)]) if p.embeds_known else None
            for p in routing.placeholders
        )
        return Outcome(routing.token_ids, ranges, features=features)
    except InexactError as inexact:
        return Outcome(refusal=f"{inexact.reason}: {inexact}")
