"""Llama 4 and Command A Vision: the canvas of tiles that scales an image least.

Sources: vLLM ``model_executor/models/mllama4.py`` and ``cohere2_vision.py``; transformers
``models/llama4/image_processing_llama4.py`` (`get_best_fit`), ``processing_llama4.py`` and
``models/cohere2_vision/image_processing_cohere2_vision.py`` (`get_optimal_tiled_canvas`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.grids.closest_tiles import grids
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class CanvasTiles(OneByOne[ImageSize]):
    """The tiles of the best canvas, and the whole image once more as one tile.

    Attributes:
        tile_size: the side of a tile, in pixels.
        max_tiles: the most tiles, without the whole image.
        tile_side: a tile has the square of this many feature positions; None: by its patches.
        patch_size: the side of a patch, in pixels.
        pixel_shuffle_ratio: the number of feature positions along a side of a tile for each patch.
        single_precision: whether the processor compares scales in single precision, and looks at
            canvases by their height first; otherwise in double precision, and by their width.
        cropped: whether images are cut into tiles at all.
        to_max_canvas: whether an image is enlarged as far as a canvas allows.
    """

    tile_size: int
    max_tiles: int
    tile_side: int | None = None
    patch_size: int = 1
    pixel_shuffle_ratio: float = 1.0
    single_precision: bool = False
    cropped: bool = True
    to_max_canvas: bool = False

    def __post_init__(self) -> None:
        if self.tile_size % self.patch_size:
            raise ValueError(f"tiles of a multiple of {self.patch_size} pixels")

    def max_embeds(self, _: CachePlan) -> int:
        """The engine's largest image is one column of tiles."""
        return self.count(ImageSize(self.tile_size, self.max_tiles * self.tile_size)).total

    def count(self, image: ImageSize) -> Count:
        rows, columns = self._grid(image) if self.cropped else (1, 1)
        tile = self._tokens_per_tile()
        return Count(rows, columns, tile, tile) if rows * columns > 1 else Count(whole=tile)

    def _grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of the canvas that enlarges an image least, or else reduces it least.

        Of canvases with one scale it is the first, which has the fewest tiles.
        """
        canvases = _canvases(self.tile_size, self.max_tiles, self.single_precision)
        sides = np.array([image.height, image.width], dtype=canvases.dtype)
        scales = (canvases / sides).min(axis=1)
        larger = scales[scales >= 1]
        scale = larger.min() if len(larger) and not self.to_max_canvas else scales.max()
        height, width = canvases[np.argmax(scales == scale)].tolist()
        return int(height) // self.tile_size, int(width) // self.tile_size

    def _tokens_per_tile(self) -> int:
        if self.tile_side is not None:
            return self.tile_side**2
        return (self.tile_size // self.patch_size) ** 2 // round(1 / self.pixel_shuffle_ratio**2)


@lru_cache(maxsize=16)
def _canvases(tile_size: int, max_tiles: int, single_precision: bool) -> npt.NDArray[np.float64]:
    """Height and width of all canvases in pixels, smallest area first; shape (n, 2)."""
    sides = np.array(grids(1, max_tiles), dtype=np.float64) * tile_size
    return sides.astype(np.float32) if single_precision else sides[:, ::-1]
