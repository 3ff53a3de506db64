"""Command A Vision: the grid of tiles that an image is enlarged least for, a line for each tile.

Sources: vLLM 0.33.0 ``model_executor/models/cohere2_vision.py``; transformers 5.20.2
``models/cohere2_vision/image_processing_cohere2_vision.py`` (`get_optimal_tiled_canvas`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmroute.geometry.closest_grid import TILING, grids, tiling
from mmroute.geometry.processor_kwargs import check_absent, check_size, read_flat, read_kwargs
from mmroute.geometry.replacement import (
    CachePlan,
    ModelContext,
    Overrides,
    Replacement,
    check_count,
    with_features,
)
from mmroute.items import ImageSize

__all__ = ["TileLines", "least_enlarged_grid"]


@dataclass(frozen=True, slots=True)
class TileLines:
    """Builds a line of features for each tile, and one more for the whole image of several.

    Two tiles (t: the features of a line) are ``start t break t break t break end``.

    Attributes:
        image_token_id: a feature position.
        start_token_id: what opens an image.
        end_token_id: what closes it.
        break_token_id: what closes a line.
        tile_size: side of a tile, in pixels.
        line_side: a line has the square of this many feature positions.
        max_tiles: the most tiles of a grid.
        cropped: whether images are cut into tiles at all.
    """

    image_token_id: int
    start_token_id: int
    end_token_id: int
    break_token_id: int
    tile_size: int
    line_side: int
    max_tiles: int
    cropped: bool = True

    def max_embeds(self, _: CachePlan) -> int:
        """The engine's largest image is one column of tiles."""
        lines = self.lines(ImageSize(self.tile_size, self.max_tiles * self.tile_size))
        return lines * self.line_side**2

    def with_overrides(self, overrides: Overrides) -> TileLines:
        """How many tiles there may be, and whether there are any.

        The engine counts by flat kwargs, not by those in ``images_kwargs``, and by no fewest tiles.
        """
        check_absent(overrides.processor, "do_center_crop", "downsample_factor", "patch_size")
        given = read_kwargs(overrides.processor, "size", *TILING)
        check_size(given, edge=None)
        tiling(given)
        changes = tiling(read_flat(overrides.processor, *TILING))
        changes.pop("min_tiles", None)
        return replace(self, **changes)

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        return (self._replacement(self.lines(image)) for image in items)

    def lines(self, image: ImageSize) -> int:
        """How many lines an image has."""
        if not self.cropped:
            return 1
        columns, rows = least_enlarged_grid(
            image, tile_size=self.tile_size, max_tiles=self.max_tiles
        )
        tiles = columns * rows
        return tiles + 1 if tiles > 1 else 1

    def _replacement(self, lines: int) -> Replacement:
        features = self.line_side**2
        check_count(lines * features)
        line = np.full(features + 1, self.image_token_id, dtype=np.uint32)
        line[-1] = self.break_token_id
        ids = np.concatenate(
            (
                np.array([self.start_token_id], dtype=np.uint32),
                np.tile(line, lines),
                np.array([self.end_token_id], dtype=np.uint32),
            )
        )
        return with_features(ids, self.image_token_id)


def least_enlarged_grid(image: ImageSize, *, tile_size: int, max_tiles: int) -> tuple[int, int]:
    """Columns and rows of the grid that takes the least enlargement, else the least reduction.

    Of grids with one scale, the one of fewest tiles.

    >>> least_enlarged_grid(ImageSize(1280, 720), tile_size=512, max_tiles=12)
    (3, 2)
    """

    def scale(grid: tuple[int, int]) -> float:
        columns, rows = grid
        return min(columns * tile_size / image.width, rows * tile_size / image.height)

    listed = grids(1, max_tiles)
    enlarging = [grid for grid in listed if scale(grid) >= 1]
    return min(enlarging, key=scale) if enlarging else max(listed, key=scale)
