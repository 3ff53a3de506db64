"""One token, repeated: Qwen-VL, LLaVA and most others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.replacement import ModelContext, Replacement, check_count
from mmroute.token_ids import TokenIds

_RUN: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Fill:
    """Writes one token for each feature position, and nothing else."""

    fill: int

    def replacement(self, count: Count, *_: object) -> Replacement:
        rows, columns, tile, whole, _ = count
        total = rows * columns * tile + whole
        if total <= _RUN:
            return Replacement(_run(self.fill)[:total])
        return Replacement(filled(self.fill, total))


@dataclass(frozen=True, slots=True)
class NumberedFill:
    """Writes the k-th item in the place of a tag with its number: Phi-3."""

    fill: int
    target: str

    def replacement(
        self, count: Count, _: object, number: int, context: ModelContext
    ) -> Replacement:
        target = context.encode(self.target.format(n=number + 1))
        return Replacement(filled(self.fill, count.total), target=tuple(target.tolist()))


def filled(token_id: int, count: int) -> TokenIds:
    """A token so many times, shape (count,); not to be written to."""
    if count <= _RUN:
        return _run(token_id)[:count]
    check_count(count)
    return np.full(count, token_id, dtype=np.uint32)


@lru_cache(maxsize=64)
def _run(token_id: int) -> TokenIds:
    """A long array of the token, of which most images are a slice, so that none is copied."""
    run = np.full(_RUN, token_id, dtype=np.uint32)
    run.setflags(write=False)
    return run
