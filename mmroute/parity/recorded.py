"""A check of a loaded model against an engine's recorded answers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mmroute.health.self_check import Check
from mmroute.model.resolved import ResolvedModel
from mmroute.parity.comparison import our_outcome
from mmroute.parity.oracles.vectors import VectorsOracle

__all__ = ["check_recorded"]

_MOST_CASES: Final = 12


def check_recorded(model: ResolvedModel, path: Path) -> Check:
    """Compare mmroute's answers with some of those in a file of vectors.

    Args:
        model: that the file is for.
        path: of the file.

    Raises:
        MmrouteError: the file cannot be read.
    """
    oracle = VectorsOracle(path)
    cases = oracle.cases()
    compared = cases[:: max(1, -(-len(cases) // _MOST_CASES))]
    problems = []
    for case in compared:
        ours = our_outcome(model, case)
        if not ours.same(oracle.answer(case)):
            why = f" ({ours.refusal})" if ours.refusal else ""
            problems.append(f"{case.id}: not {oracle.version}'s answer{why}")
    if not compared:
        problems.append(f"{path} holds no request")
    detail = f"{len(compared)} of {len(cases)} compared, equal to {oracle.version}"
    return Check("vectors", ok=not problems, detail="; ".join(problems) or detail)
