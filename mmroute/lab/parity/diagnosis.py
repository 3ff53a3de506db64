"""Finds the cause of a difference between two answers, and the setting that removes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.causes import Cause, Diagnosis, Remedy
from mmroute.lab.parity.differences import first_difference, num_same
from mmroute.lab.parity.identity_remedies import identities_of, identity_remedy
from mmroute.lab.parity.refusals import engine_refuses
from mmroute.lab.parity.remedies import token_remedy
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.lines import request_of


def diagnose(
    model: ResolvedModel,
    case: Case,
    ours: Outcome,
    theirs: Outcome,
    *,
    arguments_found: list[Mapping[str, Any]],
    engine_model: str = "",
) -> Diagnosis:
    """The cause of a difference; `other` if no setting that was tried removes it."""
    if ours.token_ids is None:
        return Diagnosis(Cause.OTHER, 0, f"mmroute does not answer: {ours.refusal}")
    if theirs.token_ids is None:
        return Remedy.diagnosis(list(engine_refuses(model, str(theirs.refusal))), 0)
    if not np.array_equal(ours.token_ids, theirs.token_ids):
        request = request_of(case.request)
        remedy = token_remedy(
            model,
            request,
            answer(model, request),
            theirs.token_ids,
            arguments_found=arguments_found,
        )
        at = first_difference(ours.token_ids, theirs.token_ids)
        return Remedy.diagnosis([remedy], at)
    end = len(ours.token_ids)
    if None not in (ours.ranges, theirs.ranges) and ours.ranges != theirs.ranges:
        return Diagnosis(Cause.RANGES_ONLY, end, _ranges(ours, theirs))
    other = ours.other_features(theirs)
    if other is not None:
        return Diagnosis(Cause.FEATURES_ONLY, end, _features(ours, theirs, other))

    def same_identities(other: ResolvedModel) -> bool:
        return identities_of(other, case) == theirs.identities

    remedy = identity_remedy(model, same_identities, engine_model)
    return Remedy.diagnosis([remedy], end)


def _features(ours: Outcome, theirs: Outcome, k: int) -> str:
    shown = [
        sum(length for embed, length in (answer.features or ())[k] or () if embed)
        for answer in (ours, theirs)
    ]
    return (
        f"All IDs and ranges are equal; range {k + 1} has {shown[0]} positions with features in "
        f"mmroute, and {shown[1]} in the oracle, or they stand elsewhere in it."
    )


def _ranges(ours: Outcome, theirs: Outcome) -> str:
    a, b = ours.ranges or (), theirs.ranges or ()
    k = num_same(a, b)
    shown = [f"{r[k][0]} with length {r[k][1]}" if k < len(r) else "nowhere" for r in (a, b)]
    return (
        f"All IDs are equal; image {k + 1} is at {shown[0]} in mmroute, and at {shown[1]} in the "
        f"oracle ({len(a)} and {len(b)} ranges)."
    )
