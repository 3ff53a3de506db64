"""Tiles with words between them, and the whole item before or behind them."""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.geometry.grid import Count
from mmroute.geometry.layout import Around, Words
from mmroute.geometry.layouts.runs import Run, joined_runs
from mmroute.geometry.replacement import Replacement


@dataclass(frozen=True, slots=True)
class Tiles:
    """Writes tiles row by row. Each of its words is encoded for itself when the model is loaded."""

    fill: int
    tile: Around
    whole: Around
    whole_beside_tiles: Around | None = None
    whole_first: bool = False
    between_tiles: Words = ()
    between_rows: Words = ()
    opening: Words = ()
    closing: Words = ()

    def replacement(self, count: Count, *_: object) -> Replacement:
        rows, columns, before = count.rows, count.columns, self.tile.before
        whole = (rows and self.whole_beside_tiles) or self.whole
        parts = [Run(whole.before, count.whole, whole.after)]
        if rows:
            inner = Run(before, count.tile, self.tile.after + self.between_tiles)
            row_end = Run(before, count.tile, self.tile.after + self.between_rows)
            last = Run(before, count.tile, self.tile.after)
            tiles = [*([*[inner] * (columns - 1), row_end] * rows)[:-1], last]
            parts = parts + tiles if self.whole_first else tiles + parts
        return joined_runs(self.fill, parts, opening=self.opening, closing=self.closing)
