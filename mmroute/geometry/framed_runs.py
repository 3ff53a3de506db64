"""Replacements of several runs of features, with other tokens around each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.geometry.replacement import EmbedRuns, Replacement, check_count


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
    counts = [run.count for run in runs]
    check_count(sum(counts))
    short = list(opening)  # with one feature position for each run
    positions: list[int] = []
    embeds: list[tuple[bool, int]] = []
    others = len(short)
    for run in runs:
        short += run.before
        positions.append(len(short))
        short += [fill, *run.after]
        others += len(run.before)
        if run.count:
            embeds += [(False, others), (True, run.count)]
            others = 0
        others += len(run.after)
    short += closing
    embeds.append((False, others + len(closing)))
    repeats = np.ones(len(short), dtype=np.int64)
    repeats[positions] = counts
    token_ids = np.repeat(np.array(short, dtype=np.uint32), repeats)
    embed_runs: EmbedRuns = tuple(run for run in embeds if run[1])
    return Replacement(token_ids, embed_runs)
