"""Llama 4: the canvas of tiles that scales an image least, and the image once more as one tile.

Sources: vLLM 0.33.0 ``model_executor/models/mllama4.py``; transformers 5.20.2
``models/llama4/image_processing_llama4.py`` (`get_best_fit`) and ``processing_llama4.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mmroute.geometry.closest_grid import grids
from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import (
    check_absent,
    check_size,
    positive_count,
    read_flat,
    read_kwargs,
    refused,
    switch,
)
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class CanvasTiles(OneByOne[ImageSize]):
    """Builds tiles with a separator behind each, a global tile, and what is around them.

    Two rows of two tiles (t: the features of a tile, g: those of the global one) are
    ``start t tile_x t tile_y t tile_x t tile_y image g end``; one alone is ``start image g end``.

    Attributes:
        image_token_id: what stands before the global tile.
        patch_token_id: a feature position.
        start_token_id: what opens an image.
        end_token_id: what closes it.
        tile_x_token_id: what stands between two tiles of a row.
        tile_y_token_id: what closes a row of tiles.
        tile_size: side of a tile, in pixels.
        patch_size: side of a patch, in pixels.
        pixel_shuffle_ratio: feature positions along a side of a tile for each patch.
        max_tiles: the most tiles, without the global one.
        to_max_canvas: whether an image is enlarged as far as a canvas allows.
    """

    image_token_id: int
    patch_token_id: int
    start_token_id: int
    end_token_id: int
    tile_x_token_id: int
    tile_y_token_id: int
    tile_size: int
    patch_size: int
    pixel_shuffle_ratio: float
    max_tiles: int
    to_max_canvas: bool = False

    def __post_init__(self) -> None:
        if self.tile_size % self.patch_size:
            raise ValueError(f"tiles of a multiple of {self.patch_size} pixels")

    def max_embeds(self, _: CachePlan) -> int:
        """The engine's largest image is one column of tiles."""
        largest = ImageSize(self.tile_size, self.max_tiles * self.tile_size)
        return self._replacement(*self.grid(largest)).num_embeds

    def with_overrides(self, overrides: Overrides) -> CanvasTiles:
        """Only a flat ``resize_to_max_canvas`` changes the count."""
        check_absent(
            overrides.processor, "do_center_crop", "do_rescale", "pixel_shuffle_ratio", *_TOKENS
        )
        names = ("resize_to_max_canvas", "max_patches", "size")
        given = read_kwargs(overrides.processor, *names)
        size = check_size(given, edge=None)
        if "size" in given and size["height"] != size["width"]:
            raise refused("size", given["size"], "a square")
        positive_count(given, "max_patches", self.max_tiles)
        switch(given, "resize_to_max_canvas", default=self.to_max_canvas)
        flat = read_flat(overrides.processor, "resize_to_max_canvas")
        return replace(self, to_max_canvas=flat.get("resize_to_max_canvas", self.to_max_canvas))

    def replacement(self, image: ImageSize, _: ModelContext) -> Replacement:
        return self._replacement(*self.grid(image))

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of tiles.

        The least enlargement if an image can be enlarged, else the least reduction; of canvases
        with one scale the smallest. The processor compares scales in single precision.
        """
        canvases = _canvases(self.tile_size, self.max_tiles)
        sides = np.array([image.height, image.width], dtype=np.float32)
        scales = (canvases / sides).min(axis=1)
        larger = scales[scales >= 1]
        scale = larger.min() if len(larger) and not self.to_max_canvas else scales.max()
        # The smallest come first.
        height, width = canvases[np.argmax(scales == scale)]
        return int(height) // self.tile_size, int(width) // self.tile_size

    def _replacement(self, rows: int, columns: int) -> Replacement:
        shuffled = round(1 / self.pixel_shuffle_ratio**2)
        per_tile = (self.tile_size // self.patch_size) ** 2 // shuffled
        inner = FramedRun((), per_tile, [self.tile_x_token_id])
        last = FramedRun((), per_tile, [self.tile_y_token_id])
        tiles = [*[inner] * (columns - 1), last] * rows if rows * columns > 1 else []
        whole = FramedRun([self.image_token_id], per_tile, [self.end_token_id])
        return framed_runs(self.patch_token_id, [*tiles, whole], opening=[self.start_token_id])


_TOKENS = (
    "end_of_image_token", "fake_image_token", "image_token", "patch_token",
    "start_of_image_token", "tile_x_separator_token", "tile_y_separator_token",
)  # fmt: skip


@lru_cache(maxsize=16)
def _canvases(tile_size: int, max_tiles: int) -> npt.NDArray[np.float32]:
    """All (height, width) in pixels, smallest area first; shape (n, 2)."""
    return np.array(grids(1, max_tiles), dtype=np.float32) * np.float32(tile_size)
