"""LFM2-VL: one resized image, or the tiles of the closest grid and the resized image beside them.

Sources: vLLM ``model_executor/models/lfm2_vl.py``, transformers
``models/lfm2_vl/image_processing_lfm2_vl.py``. Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.grids.closest_tiles import closest_of, grids
from mmroute.geometry.grids.smart_resize import smart_resize
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class ThumbnailTiles:
    """Counts the tiles of an image and its thumbnail, or the image where it is not cut."""

    tile_size: int
    patch_size: int
    downsample_factor: int
    min_tiles: int
    max_tiles: int
    min_image_tokens: int
    max_image_tokens: int
    max_pixels_tolerance: float
    thumbnail: bool
    split: bool

    def __post_init__(self) -> None:
        if self.tile_size % self.patch_size:
            raise ValueError(f"tiles of a multiple of {self.patch_size} pixels")
        if self.split and self.min_tiles > self.max_tiles:
            raise ValueError(f"a min_tiles of at most {self.max_tiles}")

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        """The largest square that is not cut."""
        side = int(math.sqrt(self.max_image_tokens * self._unit**2))
        return [ImageSize(side, side)]

    @property
    def _unit(self) -> int:
        """Side of a token, in pixels."""
        return self.patch_size * self.downsample_factor

    def counts(self, items: Sequence[ImageSize], _: ModelContext) -> Iterator[Count]:
        grids = [self.grid(image) for image in items]
        for image, grid in zip(items, grids, strict=True):
            self._check_padding(image, cut=grid > (1, 1), alone=len(items) == 1)
        yield from map(self._count, items, grids)

    def _check_padding(self, image: ImageSize, *, cut: bool, alone: bool) -> None:
        """Refuse what the processor cannot stack: it pads all tiles and images to one length."""
        if cut and not alone and not (self.split and self.thumbnail):
            raise InexactError(
                Reason.UNSUPPORTED_PROCESSOR_KWARGS,
                "without do_image_splitting or use_thumbnail the engine confuses the sizes of "
                "several images, if one of them is large enough to be cut",
            )
        if cut and self.split and not self.thumbnail:
            return
        padded = self.max_image_tokens * self.downsample_factor**2
        if self.split:
            padded = max(padded, (self.tile_size // self.patch_size) ** 2)
        patches = math.prod(self._resized(image)) * self.downsample_factor**2
        if patches > padded and (not alone or (cut and self.split)):
            why = (
                f"resized it has {patches} patches, and what stands beside it is padded to {padded}"
            )
            raise image_refused(image, why)

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Columns and rows of tiles; (1, 1) if the image is not cut."""
        height = max(self.patch_size, round(image.height / self._unit) * self._unit)
        width = max(self.patch_size, round(image.width / self._unit) * self._unit)
        limit = self.max_image_tokens * self._unit**2 * self.max_pixels_tolerance
        if height * width <= limit or self.min_tiles == self.max_tiles == 1:
            return 1, 1
        return closest_of(image, grids(self.min_tiles, self.max_tiles), self.tile_size)

    def _count(self, image: ImageSize, grid: tuple[int, int]) -> Count:
        columns, rows = grid
        whole = math.prod(self._resized(image))
        if grid == (1, 1):
            return Count(whole=whole)
        side = math.ceil(self.tile_size // self.patch_size / self.downsample_factor)
        is_last_tile = self.split and not self.thumbnail
        return Count(rows, columns, side * side, side * side if is_last_tile else whole)

    def parts(self, image: ImageSize) -> list[tuple[int, int]]:
        columns, rows = self.grid(image)
        if not (self.split and self.thumbnail) and rows * columns > 1:
            raise InexactError(
                Reason.METADATA_UNKNOWN,
                "without do_image_splitting or use_thumbnail the engine counts parts of the image "
                "that it does not make",
            )
        side = self.tile_size // self.patch_size
        height, width = self._resized(image)
        whole = height * self.downsample_factor, width * self.downsample_factor
        return [(side, side)] * (rows * columns if rows * columns > 1 else 0) + [whole]

    def _resized(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of tokens of the image after its smart resize.

        Both are at least 1.
        """
        return smart_resize(
            image.height,
            image.width,
            factor=self._unit,
            min_pixels=self.min_image_tokens * self._unit**2,
            max_pixels=self.max_image_tokens * self._unit**2,
            least_rounded=1,
        )
