"""Runs of features with words around each, as one replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mmroute.geometry.layout import Words
from mmroute.geometry.replacement import EmbedRuns, Replacement, check_count
from mmroute.token_ids import TokenIds


class Run(NamedTuple):
    """One run of feature positions, with token IDs before and behind it."""

    before: Words
    features: int
    after: Words


def joined_runs(fill: int, runs: Sequence[Run], *, opening: Words, closing: Words) -> Replacement:
    """One replacement of all runs.

    >>> runs = [Run((1,), 2, (3,)), Run((1,), 2, (3,))]
    >>> joined_runs(9, runs, opening=(), closing=(4,)).token_ids.tolist()
    [1, 9, 9, 3, 1, 9, 9, 3, 4]
    """
    counts = [run.features for run in runs]
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
        if run.features:
            embeds += [(False, others), (True, run.features)]
            others = 0
        others += len(run.after)
    short += closing
    embeds.append((False, others + len(closing)))
    repeats = [1] * len(short)
    for position, features in zip(positions, counts, strict=True):
        repeats[position] = features
    token_ids = np.repeat(np.array(short, dtype=np.uint32), repeats)
    embed_runs: EmbedRuns = tuple(run for run in embeds if run[1])
    return Replacement(token_ids, embed_runs)


def with_runs(token_ids: TokenIds, fill: int) -> Replacement:
    """The replacement of token IDs, of which those that are `fill` receive features.

    >>> with_runs(np.array([1, 9, 9, 3], dtype=np.uint32), 9).embed_runs
    ((False, 1), (True, 2), (False, 1))
    """
    is_embed = token_ids == fill
    starts = [0, *(np.flatnonzero(np.diff(is_embed)) + 1).tolist()]
    ends = [*starts[1:], len(token_ids)]
    runs = [(bool(is_embed[start]), end - start) for start, end in zip(starts, ends, strict=True)]
    return Replacement(token_ids, tuple(runs))
