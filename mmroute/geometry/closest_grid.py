"""InternVL: the grid of square tiles whose aspect ratio is closest to the image's.

Sources: vLLM 0.33.0 ``transformers_utils/processors/internvl.py``; transformers 5.20.2
``models/got_ocr2/image_processing_got_ocr2.py`` (`get_optimal_tiled_canvas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

from mmroute.geometry.filled_images import FramedImages
from mmroute.geometry.processor_kwargs import (
    check_absent,
    check_known,
    positive_count,
    read_kwargs,
    switch,
)
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.requests.items import ImageSize

TILING: Final = ("min_patches", "max_patches", "crop_to_patches")
MOST_TILES: Final = 1024  # the grids of so many are listed in a millisecond


@dataclass(frozen=True, slots=True)
class ClosestGrid(FramedImages):
    """Counts the tiles of a grid, and puts their features between a start and an end token.

    Attributes:
        tile_size: side of a tile, in pixels.
        min_tiles: the fewest tiles of a grid.
        max_tiles: the most tiles of a grid.
        tokens_per_tile: feature positions of a tile; None: by the patches of a tile.
        patch_size: side of a patch, in pixels.
        downsample_ratio: feature positions along a side of a tile for each patch.
        cropped: whether images are cut into tiles at all.
        planned_cropped: whether the engine plans its encoder cache with images that are cut.
        thumbnail: whether a grid of several tiles is followed by the whole image as one more.
        overrides: of a request's processor kwargs: InternVL's are ``read``, or Nemotron's
            ``max_num_tiles``, or all are ``refused``.
    """

    tile_size: int
    min_tiles: int
    max_tiles: int
    tokens_per_tile: int | None = None
    patch_size: int = 1
    downsample_ratio: float = 1.0
    cropped: bool = True
    planned_cropped: bool = True
    thumbnail: bool = True
    overrides: Literal["read", "max_num_tiles", "refused"] = "read"

    def max_embeds(self, _: CachePlan) -> int:
        """The engine also tries one tile more than the most."""
        if not self.planned_cropped:
            return self._tokens_per_tile()
        most = self.max_tiles + self.thumbnail
        sizes = [
            ImageSize(columns * self.tile_size, rows * self.tile_size)
            for columns, rows in grids(self.min_tiles, most)
        ]
        return max(self.count(size) for size in sizes)

    def with_overrides(self, overrides: Overrides) -> ClosestGrid:
        """How many tiles there may be, and whether there are any."""
        if self.overrides == "refused":
            check_known(overrides.processor)
            return self
        if self.overrides == "max_num_tiles":
            return replace(self, max_tiles=max_num_tiles(overrides.processor, self.max_tiles))
        check_absent(overrides.processor, "do_center_crop", "size")
        changes = tiling(read_kwargs(overrides.processor, *TILING))
        if "cropped" in changes:
            changes["planned_cropped"] = changes["cropped"]
        return replace(self, **changes)

    def count(self, image: ImageSize) -> int:
        tiles = 1
        if self.cropped:
            columns, rows = closest_grid(
                image, tile_size=self.tile_size, min_tiles=self.min_tiles, max_tiles=self.max_tiles
            )
            tiles = columns * rows
        if self.thumbnail and tiles != 1:
            tiles += 1
        return tiles * self._tokens_per_tile()

    def _tokens_per_tile(self) -> int:
        if self.tokens_per_tile is not None:
            return self.tokens_per_tile
        return int((self.tile_size // self.patch_size) ** 2 * self.downsample_ratio**2)


def tiling(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the ``TILING`` of some kwargs changes of ``min_tiles``, ``max_tiles`` and ``cropped``.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    changes: dict[str, Any] = {}
    for name, field in (("min_patches", "min_tiles"), ("max_patches", "max_tiles")):
        if name in given:
            changes[field] = positive_count(given, name, 1, most=MOST_TILES)
    if "crop_to_patches" in given:
        changes["cropped"] = switch(given, "crop_to_patches", default=True)
    return changes


def max_num_tiles(kwargs: Mapping[str, Any], default: int) -> int:
    """The most tiles of a grid, for processors that refuse all names but a few.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    check_known(kwargs, "max_num_tiles", "use_audio_in_video", "truncation")
    switch(kwargs, "use_audio_in_video", default=False)
    return positive_count(kwargs, "max_num_tiles", default, most=MOST_TILES)


def closest_grid(
    image: ImageSize, *, tile_size: int, min_tiles: int, max_tiles: int
) -> tuple[int, int]:
    """Columns and rows of the grid whose aspect ratio is closest; (1, 1) if there is no grid.

    Of two equally close ones, the one of more tiles if the image has more than half its pixels.

    >>> closest_grid(ImageSize(1280, 720), tile_size=448, min_tiles=1, max_tiles=12)
    (4, 2)
    """
    aspect, area = image.width / image.height, image.width * image.height
    best, least = (1, 1), float("inf")
    for columns, rows in grids(min_tiles, max_tiles):
        difference = abs(aspect - columns / rows)
        if difference < least:
            best, least = (columns, rows), difference
        elif difference == least and area > 0.5 * tile_size**2 * columns * rows:
            best = (columns, rows)
    return best


@lru_cache(maxsize=64)
def grids(min_tiles: int, max_tiles: int) -> tuple[tuple[int, int], ...]:
    """All (columns, rows) of so many tiles, fewest tiles first.

    Grids of as many tiles stand in the order of the engine's set, which is filled in this order.
    """
    found = [
        (columns, rows)
        for columns in range(1, max_tiles + 1)
        for rows in range(1, max_tiles // columns + 1)
        if columns * rows >= min_tiles
    ]
    found.sort(key=lambda grid: (max(*grid, min_tiles), grid))
    return tuple(sorted(set(found), key=lambda grid: grid[0] * grid[1]))
