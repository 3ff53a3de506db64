"""Tiles, with words between them or in a text that the engine encodes as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmroute.errors import InexactError, Reason
from mmroute.geometry.grid import Count
from mmroute.geometry.layout import Around, Words
from mmroute.geometry.layouts.runs import Run, joined_runs, with_runs
from mmroute.geometry.replacement import ModelContext, Replacement, check_count
from mmroute.token_ids import TokenIds


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


@dataclass(frozen=True, slots=True)
class TileText:
    """Writes tiles row by row, or the frames of a video, each as a row, in one text."""

    fill: Words
    tile: str
    whole: str = ""
    whole_beside_tiles: str | None = None
    whole_first: bool = False
    between_rows: str = ""
    opening: str = ""
    closing: str = ""

    def replacement(
        self, count: Count, _: object, number: int, context: ModelContext
    ) -> Replacement:
        if len(self.fill) != 1:
            raise InexactError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"a feature position must be one token, but the tokenizer makes {self.fill} of it",
            )
        tiles = [count.tile] * (count.rows * count.columns)
        counts = [count.whole, *tiles] if self.whole_first else [*tiles, count.whole]
        text = context.encode(self._text(count.rows, count.columns, number))
        return _repeated(text, self.fill[0], counts if self.whole else tiles)

    def _text(self, rows: int, columns: int, number: int) -> str:
        """The replacement with one feature position for each part."""
        tiles = self.between_rows.join(
            [
                "".join(
                    [
                        self.tile.format(row=row, col=column, position=(row - 1) * columns + column)
                        for column in range(1, columns + 1)
                    ]
                )
                for row in range(1, rows + 1)
            ]
        )
        beside = rows and self.whole_beside_tiles is not None
        whole = ((self.whole_beside_tiles if beside else self.whole) or "").format()
        parts = whole + tiles if self.whole_first else tiles + whole
        return f"{self.opening.format(number=number)}{parts}{self.closing.format()}"


@dataclass(frozen=True, slots=True)
class SizedText:
    """Writes one run of features in a text that has an image's rows and columns: Emu3."""

    fill: int
    text: str

    def replacement(
        self, count: Count, _item: object, _number: int, context: ModelContext
    ) -> Replacement:
        text = context.encode(self.text.format(rows=count.rows, columns=count.columns))
        placed = _repeated(text, self.fill, [count.total])
        if count.total > len(text):
            return placed
        # The engine takes the most frequent token for that of the features: a digit of the size.
        ids, counts = np.unique(placed.token_ids, return_counts=True)
        return with_runs(placed.token_ids, int(ids[counts.argmax()]))


def _repeated(text: TokenIds, fill: int, counts: Sequence[int]) -> Replacement:
    """An encoded text whose k-th feature position is repeated ``counts[k]`` times.

    A token that is split off the text as a whole is encoded the same however often it is repeated.

    >>> _repeated(np.array([7, 10, 8, 10], dtype=np.uint32), 10, [2, 1]).token_ids.tolist()
    [7, 10, 10, 8, 10]
    """
    places = (text == fill).nonzero()[0]
    if len(places) != len(counts):
        raise InexactError(
            Reason.SPECIAL_TOKEN_SPLIT,
            f"the text around {len(counts)} parts of an item has the token {fill} "
            f"{len(places)} times",
        )
    check_count(sum(counts))
    repeats = np.ones(len(text), dtype=np.int64)
    repeats[places] = counts
    return with_runs(np.repeat(text, repeats), fill)
