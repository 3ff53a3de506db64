"""Rows of features, each closed by a break token, the last by an end: Pixtral, Mistral 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.replacement import ModelContext, Replacement, check_count


@dataclass(frozen=True, slots=True)
class Rows:
    """Feature positions row by row.

    Attributes:
        fill: the token of a feature position.
        row_break: what closes a row.
        end: what closes the last row instead.

    >>> layout = Rows(fill=10, row_break=12, end=13)
    >>> layout.replacement(Count(2, 2), None, 0, None).token_ids.tolist()
    [10, 10, 12, 10, 10, 13]
    """

    fill: int
    row_break: int
    end: int

    def replacement(
        self, count: Count, _item: object, _number: int, _context: ModelContext | None
    ) -> Replacement:
        rows, columns = count.rows, count.columns
        check_count(columns * rows)
        row = np.full(columns + 1, self.fill, dtype=np.uint32)
        row[-1] = self.row_break
        token_ids = np.tile(row, rows)
        token_ids[-1] = self.end
        return Replacement(token_ids, ((True, columns), (False, 1)) * rows)
