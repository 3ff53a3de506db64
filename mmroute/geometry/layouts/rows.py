"""Rows of features with break tokens: Pixtral, Mistral 3, Molmo 2, DeepSeek-V4 (paired rows).

Source: vLLM ``models/deepseek_v4/common/mm_preprocess.py`` (``build_image_block``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.layouts.runs import with_runs
from mmroute.geometry.replacement import Replacement, check_count
from mmroute.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class PairedRows:
    """Writes pairs of rows: first both tokens of the first column, then both of the next one.

    >>> layout = PairedRows(fill=7, row_end=1, pad=0, start=8, end=9)
    >>> layout.replacement(Count(1, 2), None, 0, None).token_ids.tolist()
    [8, 7, 0, 7, 0, 1, 0, 0, 0, 9]
    """

    fill: int
    row_end: int
    pad: int
    start: int
    end: int

    def replacement(self, count: Count, *_: object) -> Replacement:
        rows, columns = count.rows, count.columns
        check_count(rows * columns)
        pairs = -(-rows // 2)
        grid = np.full((2 * pairs, columns + 1), self.pad, dtype=np.uint32)
        grid[:rows, :columns] = self.fill
        grid[:rows, columns] = self.row_end
        cells = grid.reshape(pairs, 2, columns + 1).transpose(0, 2, 1).reshape(-1)
        rest = [self.pad] * (pairs * (columns + 1) % 2 * 2)
        token_ids = np.concatenate(([self.start], cells, rest, [self.end])).astype(np.uint32)
        return with_runs(token_ids, self.fill)


@dataclass(frozen=True, slots=True)
class Rows:
    """Writes feature positions row by row.

    >>> layout = Rows(fill=10, row_break=12, end=13)
    >>> layout.replacement(Count(2, 2), None, 0, None).token_ids.tolist()
    [10, 10, 12, 10, 10, 13]
    """

    fill: int
    row_break: int
    end: int

    def replacement(self, count: Count, *_: object) -> Replacement:
        rows, columns = count.rows, count.columns
        check_count(columns * rows)
        row = np.full(columns + 1, self.fill, dtype=np.uint32)
        row[-1] = self.row_break
        token_ids = np.tile(row, rows)
        token_ids[-1] = self.end
        return Replacement(token_ids, ((True, columns), (False, 1)) * rows)


@dataclass(frozen=True, slots=True)
class TwoViews:
    """Writes the rows of a square view of the whole image, then those of its crops: Molmo 2.

    All positions take features. A row's last column is its end, where the view has such.
    """

    fill: int
    row_end: int
    whole_start: int
    start: int
    end: int
    row_ends: bool = True
    own_start: bool = True

    def replacement(self, count: Count, *_: object) -> Replacement:
        check_count(count.total)
        side = math.isqrt(count.whole)
        columns = count.whole // side
        start = self.whole_start if self.own_start else self.start
        whole = self._view(start, side, columns, ends=columns > side)
        crops = self._view(self.start, count.rows, count.columns, ends=self.row_ends)
        return Replacement(np.concatenate((whole, crops)))

    def _view(self, start: int, rows: int, columns: int, *, ends: bool) -> TokenIds:
        row = np.full(columns, self.fill, dtype=np.uint32)
        if ends:
            row[-1] = self.row_end
        parts = (np.array([start], np.uint32), np.tile(row, rows), np.array([self.end], np.uint32))
        return np.concatenate(parts)
