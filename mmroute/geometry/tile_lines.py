"""Command A Vision: the grid of tiles that an image is enlarged least for, a line for each tile.

Sources: vLLM 0.33.0 ``model_executor/models/cohere2_vision.py``; transformers 5.20.2
``models/cohere2_vision/image_processing_cohere2_vision.py`` (`get_optimal_tiled_canvas`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmroute.geometry.closest_grid import TILING, grids, tiling
from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import check_absent, check_size, read_flat, read_kwargs
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class TileLines(OneByOne[ImageSize]):
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

    def replacement(self, image: ImageSize, _: ModelContext) -> Replacement:
        line = FramedRun((), self.line_side**2, [self.break_token_id])
        return framed_runs(
            self.image_token_id,
            [line] * self.lines(image),
            opening=[self.start_token_id],
            closing=[self.end_token_id],
        )

    def lines(self, image: ImageSize) -> int:
        """How many lines an image has.

        The grid takes the least enlargement, else the least reduction; of grids with one scale it
        is the one of fewest tiles.
        """
        if not self.cropped:
            return 1

        def scale(grid: tuple[int, int]) -> float:
            columns, rows = grid
            side = self.tile_size
            return min(columns * side / image.width, rows * side / image.height)

        listed = grids(1, self.max_tiles)
        enlarging = [grid for grid in listed if scale(grid) >= 1]
        columns, rows = min(enlarging, key=scale) if enlarging else max(listed, key=scale)
        tiles = columns * rows
        return tiles + 1 if tiles > 1 else 1
