"""Find the cause of a difference between two answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from mmroute.answering.lines import request_of
from mmroute.model.resolved import ResolvedModel
from mmroute.pages.alignment import first_difference
from mmroute.parity.cases import Case, Outcome
from mmroute.parity.causes import Cause, Diagnosis, Difference
from mmroute.parity.identity_causes import identities
from mmroute.parity.image_causes import (
    orientation,
    placement_order,
    unexplained_count,
    wrong_count,
)
from mmroute.parity.text_causes import (
    bos,
    decode_round_trip,
    special_token_split,
    template,
    wrong_fill,
)
from mmroute.parity.tokenizer_causes import tokenizer_class

__all__ = ["Cause", "Diagnosis", "diagnose"]

_SHOWN: Final = 8

# What proves itself by giving all of the oracle's answer comes before what only looks like it;
# of two that give the same, the commoner one.
_CHECKS: Final[tuple[Callable[[Difference], Diagnosis | None], ...]] = (
    bos,
    wrong_fill,
    tokenizer_class,
    special_token_split,
    orientation,
    wrong_count,
    placement_order,
    template,
    decode_round_trip,
    unexplained_count,
)


def diagnose(
    model: ResolvedModel, case: Case, ours: Outcome, theirs: Outcome, told: str = ""
) -> Diagnosis:
    """The cause of a difference; `other` where none is found.

    Args:
        model: who gave our answer.
        case: the request.
        ours: our answer.
        theirs: the oracle's, which is another.
        told: the engine's model string, if the oracle tells it.
    """
    if theirs.token_ids is None:
        return Diagnosis(
            Cause.ORACLE_REFUSES,
            0,
            f"The oracle refuses this request ({theirs.refusal}), and mmroute answers it. Which "
            "check of the engine is missing?",
        )
    if ours.token_ids is None:
        return Diagnosis(Cause.OTHER, 0, f"mmroute does not answer: {ours.refusal}")
    if np.array_equal(ours.token_ids, theirs.token_ids):
        if None in (ours.ranges, theirs.ranges) or ours.ranges == theirs.ranges:
            return identities(model, case, ours, theirs, told)
        return _ranges(ours, theirs)
    difference = Difference(
        model=model,
        request=request_of(case.request),
        ours=ours.token_ids,
        theirs=theirs.token_ids,
        our_ranges=ours.ranges or (),
        their_ranges=theirs.ranges,
        at=first_difference(ours.token_ids, theirs.token_ids),
    )
    found = (check(difference) for check in _CHECKS)
    return next((diagnosis for diagnosis in found if diagnosis is not None), _other(difference))


def _ranges(ours: Outcome, theirs: Outcome) -> Diagnosis:
    a, b = ours.ranges or (), theirs.ranges or ()
    k = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    shown = [f"{r[k][0]} with length {r[k][1]}" if k < len(r) else "nowhere" for r in (a, b)]
    return Diagnosis(
        Cause.RANGES_ONLY,
        0 if ours.token_ids is None else len(ours.token_ids),
        f"All IDs are equal; image {k + 1} stands at {shown[0]} in mmroute, at {shown[1]} in the "
        f"oracle ({len(a)} and {len(b)} ranges).",
    )


def _other(difference: Difference) -> Diagnosis:
    at = difference.at
    ours, theirs = (ids[at : at + _SHOWN] for ids in (difference.ours, difference.theirs))
    return difference.found(
        Cause.OTHER,
        f"mmroute has {len(difference.ours)} IDs, the oracle {len(difference.theirs)}; from "
        f"position {at} {ours.tolist()} ({difference.text(ours)!r}) and {theirs.tolist()} "
        f"({difference.text(theirs)!r}).",
    )
