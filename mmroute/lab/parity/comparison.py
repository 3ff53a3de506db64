"""Compares mmroute's answers with an oracle's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.lab.parity.cases import Case, Oracle, Outcome, Range, UndecidedError, merged_runs
from mmroute.lab.parity.differences import first_difference, num_same
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of
from mmroute.token_ids import TokenIds


class Verdict(StrEnum):
    """The result of one comparison. The values are stable; a report explains them."""

    EQUAL = "equal"
    NO_BLOCK = "no_block"
    REFUSED = "refused"
    SILENT = "silent"  # a router would not notice it
    UNNEEDED = "unneeded"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One request, and both answers to it."""

    case: Case
    ours: Outcome
    theirs: Outcome | None  # the oracle's answer; None if undecided
    verdict: Verdict  # the result of the comparison
    # What differs, or why the oracle is undecided or mmroute inexact; empty otherwise.
    note: str = ""


def compare(model: ResolvedModel, oracle: Oracle, cases: Iterable[Case]) -> Iterator[Finding]:
    """Compare case by case; each finding is yielded as soon as it is known."""
    for case in cases:
        try:
            theirs = oracle.answer(case)
        except UndecidedError as undecided:
            ours = our_outcome(model, case)
            yield Finding(case, ours, None, Verdict.UNDECIDED, str(undecided))
            continue
        yield _finding(model, case, theirs)


def compare_again(model: ResolvedModel, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Compare a model of other settings with the answers that the oracle gave."""
    for finding in findings:
        theirs = finding.theirs
        yield finding if theirs is None else _finding(model, finding.case, theirs)


def _finding(model: ResolvedModel, case: Case, theirs: Outcome) -> Finding:
    ours = our_outcome(model, case)
    if theirs.identities is not None:
        ours = replace(ours, identities=identities_of(model, case))
    return judged(case, ours, theirs)


def judged(case: Case, ours: Outcome, theirs: Outcome) -> Finding:
    """The finding of two answers to a request."""
    note = difference(ours, theirs)
    if not note:
        refused = theirs.token_ids is None
        return Finding(case, ours, theirs, Verdict.REFUSED if refused else Verdict.EQUAL)
    verdict = Verdict.UNNEEDED if ours.token_ids is None else Verdict.SILENT
    return Finding(case, ours, theirs, verdict, note)


def difference(ours: Outcome, theirs: Outcome) -> str:
    """What differs in two answers, as far as both sides have it; empty if nothing does."""
    if ours.token_ids is None:
        return "" if theirs.token_ids is None else str(ours.refusal)
    if theirs.token_ids is None:
        return f"The engine refuses this request ({theirs.refusal}), and mmroute answers it."
    if not np.array_equal(ours.token_ids, theirs.token_ids):
        return other_ids(ours.token_ids, theirs.token_ids, ours.ranges or ())
    if None not in (ours.ranges, theirs.ranges) and ours.ranges != theirs.ranges:
        a, b = ours.ranges or (), theirs.ranges or ()
        k = num_same(a, b)
        shown = [f"{r[k][0]} with length {r[k][1]}" if k < len(r) else "nowhere" for r in (a, b)]
        return (
            f"All IDs are equal; item {k + 1} is at {shown[0]} in mmroute, and at {shown[1]} in "
            f"the oracle ({len(a)} and {len(b)} ranges)."
        )
    return _other_items(ours, theirs)


def _other_items(ours: Outcome, theirs: Outcome) -> str:
    """What differs in the items of two prompts with the same IDs and ranges."""
    pairs = zip(ours.features or (), theirs.features or (), strict=False)
    for number, (own, other) in enumerate(pairs, start=1):
        if own is not None and other is not None and own != other:
            counts = [sum(n for embed, n in runs if embed) for runs in (own, other)]
            return (
                f"All IDs and ranges are equal; range {number} has {counts[0]} positions with "
                f"features in mmroute, and {counts[1]} in the oracle, or has them elsewhere."
            )
    names = ours.identities, theirs.identities
    if None in names or names[0] == names[1]:
        return ""
    return f"Items have other identities: {names[0]} in mmroute, and {names[1]} in the oracle."


def other_ids(
    ours: TokenIds, theirs: TokenIds, ranges: Iterable[Range], *, whole: bool = True
) -> str:
    """The difference of two prompts, or of their beginnings if not `whole`.

    `ranges` are those of items in ours.
    """
    text = f"mmroute has {len(ours)} token IDs and the oracle {len(theirs)}."
    if not whole:
        at = first_difference(ours, theirs)
        text = f"Blocks were stored with other tokens, from token {at} on."
    pieces = [ours[offset : offset + length] for offset, length in ranges]
    fills = np.unique(np.concatenate(pieces)) if pieces else ours[:0]
    one, other = (ids[~np.isin(ids, fills)] for ids in (ours, theirs))
    end = max(map(len, (one, other))) if whole else min(map(len, (one, other)))
    if len(fills) and np.array_equal(one[:end], other[:end]):
        text += (
            " The text is the same, and items have other counts: compare the engine's "
            "--mm-processor-kwargs and its preprocessor files."
        )
    return text


def identities_of(model: ResolvedModel, case: Case) -> tuple[str, ...] | None:
    """The identities of a chat's items with the pictures that oracles get; None if not known."""
    request = dict(case.request)
    try:
        request["messages"] = with_pictures(request["messages"], request.pop("images", None))
        named = answer(model, request_of(request)).identities
    except (InexactError, UndecidedError, KeyError):
        return None
    found = tuple([identity.value for identity in named if identity is not None])
    return found if len(found) == len(named) else None


def our_outcome(model: ResolvedModel, case: Case) -> Outcome:
    """The outcome of a case in mmroute."""
    try:
        return outcome_of(answer(model, request_of(dict(case.request))))
    except InexactError as inexact:
        return Outcome(refusal=f"{inexact.reason}: {inexact}")


def outcome_of(routing: Routing) -> Outcome:
    """The outcome of an answer."""
    if not routing.exact:
        return Outcome(refusal=f"{routing.reason}: {routing.message}")
    ranges = tuple((p.offset, p.length) for p in routing.placeholders)
    features = tuple(
        merged_runs(p.embed_runs or [(True, p.length)]) if p.embeds_known else None
        for p in routing.placeholders
    )
    return Outcome(routing.token_ids, ranges, features=features)
