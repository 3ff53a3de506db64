"""Ovis: the fewest tiles that keep most of an image's area, each scaled into a square.

Source: vLLM ``transformers_utils/processors/ovis.py`` (``preprocess_image``,
``construct_image_indicators``), ``model_executor/models/ovis.py``. Checked with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize

_ENDS: Final = 3  # tokens around the features of the whole image
_PLANNED_SIDES: Final = 9


@dataclass(frozen=True, slots=True)
class CoveringTiles:
    """Counts the tiles of a grid, the separators between them, and the whole image."""

    side: int
    image_size: int
    patch_size: int
    stride: int
    max_tiles: int
    threshold: float

    def __post_init__(self) -> None:
        """Check that tokens fill the vision tower's input."""
        if -(-self.image_size // self.patch_size) % self.stride:
            raise ValueError(f"patches along a side that are a multiple of {self.stride}")

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        side = self.side * self.stride * _PLANNED_SIDES
        return [ImageSize(side, side)]

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterable[Count]:
        grids = [self._best(image) for image in items]
        if len({rows * columns for rows, columns in grids}) > 1:
            raise image_refused(
                items[0],
                "another image has another number of tiles; the engine answers such a request only "
                "if its cache holds the images",
            )
        return [self._count(image, *grid) for image, grid in zip(items, grids, strict=True)]

    def crops(self, image: ImageSize, _: Count) -> tuple[int, int]:
        return self._best(image)

    def _count(self, image: ImageSize, rows: int, columns: int) -> Count:
        if rows * columns > 1:
            self._check(image, image.width, image.height)
        for width, height in _tiles(image, rows, columns):
            self._check(image, width, height)
        tokens = (-(-self.image_size // self.patch_size) // self.stride) ** 2
        whole = tokens + _ENDS
        if rows * columns > 1:
            whole += rows * columns * tokens + rows * (columns - 1) + rows - 1
        return Count(whole=whole)

    def _best(self, image: ImageSize) -> tuple[int, int]:
        area = image.width * image.height
        kept: dict[tuple[int, int], float] = {}
        for rows in range(1, self.max_tiles + 1):
            for columns in range(1, self.max_tiles // rows + 1):
                tiles = _tiles(image, rows, columns)
                ratio = sum([self._covered(*tile) for tile in tiles]) / area
                if ratio > 1:
                    raise image_refused(image, "its tiles together have more pixels than it has")
                kept[rows, columns] = ratio
        good = [grid for grid, ratio in kept.items() if ratio > self.threshold]
        if good:
            return min(good, key=lambda grid: (grid[0] * grid[1], -kept[grid]))
        return min(kept, key=lambda grid: (-kept[grid], grid[0] * grid[1]))

    def _covered(self, width: float, height: float) -> float:
        """Pixels that are left of a tile that is scaled into the square."""
        width, height = max(width, height), min(width, height)
        if width > self.side:
            width, height = self.side, height / width * self.side
        return width * height

    def _check(self, image: ImageSize, width: int, height: int) -> None:
        """Refuse a part that has no pixel left once it is scaled."""
        long, short = max(width, height), min(width, height)
        if not short or int(short / long * self.side) < 1:
            raise image_refused(image, "a part of it has no pixel left in its tile")


def _tiles(image: ImageSize, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Width and height of each tile; the last ones take the rest."""
    width, height = image.width // columns, image.height // rows
    for row in range(rows):
        for column in range(columns):
            last_row, last_column = row == rows - 1, column == columns - 1
            yield (
                image.width - column * width if last_column else width,
                image.height - row * height if last_row else height,
            )
