"""Replacements of several runs of features, with other tokens around each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.geometry.replacement import EmbedRuns, Replacement, check_count

__all__ = ["FramedRun", "framed_runs"]


@dataclass(frozen=True, slots=True)
class FramedRun:
    """Feature positions with other tokens around them.

    Attributes:
        before: token IDs before them.
        count: how many there are.
        after: token IDs behind them.
    """

    before: Sequence[int]
    count: int
    after: Sequence[int]


def framed_runs(
    fill: int,
    runs: Sequence[FramedRun],
    *,
    opening: Sequence[int] = (),
    closing: Sequence[int] = (),
) -> Replacement:
    """One replacement of all runs.

    >>> runs = [FramedRun([1], 2, [3]), FramedRun([1], 2, [3])]
    >>> framed_runs(9, runs, closing=[4]).token_ids.tolist()
    [1, 9, 9, 3, 1, 9, 9, 3, 4]

    Raises:
        InexactError: `item_too_large`.
    """
    check_count(sum(run.count for run in runs))
    ids: list[int] = list(opening)
    embeds: list[tuple[bool, int]] = []
    others = len(ids)
    for run in runs:
        others += len(run.before)
        ids += run.before
        ids += [fill] * run.count
        ids += run.after
        embeds += [(False, others), (True, run.count)]
        others = len(run.after)
    ids += closing
    embeds.append((False, others + len(closing)))
    embed_runs: EmbedRuns = tuple(run for run in embeds if run[1])
    return Replacement(np.array(ids, dtype=np.uint32), embed_runs)
