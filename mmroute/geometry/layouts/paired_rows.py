"""DeepSeek-V4: pairs of rows, column by column.

Source: vLLM ``models/deepseek_v4/common/mm_preprocess.py`` (``build_image_block``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmroute.geometry.grid import Count
from mmroute.geometry.layouts.runs import with_runs
from mmroute.geometry.replacement import Replacement, check_count


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
