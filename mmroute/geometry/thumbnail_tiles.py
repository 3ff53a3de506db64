"""LFM2-VL: one resized image, or tiles under row and column tags with a thumbnail behind them.

Sources: vLLM 0.33.0 ``model_executor/models/lfm2_vl.py``, transformers 5.20.2
``models/lfm2_vl/image_processing_lfm2_vl.py``. Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.closest_grid import MOST_TILES, closest_grid
from mmroute.geometry.processor_kwargs import (
    check_size,
    check_true,
    positive_count,
    read_kwargs,
    refuse_scoped,
    refused,
    switch,
)
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement, repeated
from mmroute.geometry.smart_resize import smart_resize
from mmroute.requests.items import ImageSize

# Name in a request -> field.
_COUNTS: Final[Mapping[str, str]] = {
    "min_tiles": "min_tiles",
    "max_tiles": "max_tiles",
    "min_image_tokens": "min_image_tokens",
    "max_image_tokens": "max_image_tokens",
    "tile_size": "tile_size",
    "encoder_patch_size": "patch_size",
    "downsample_factor": "downsample_factor",
}
_NEEDED: Final = ("use_thumbnail", "do_pad", "return_row_col_info")


@dataclass(frozen=True, slots=True)
class ThumbnailTiles:
    """Counts tiles and the thumbnail, and writes the text around them.

    Attributes:
        image_token_id: a feature position.
        tile_size: side of a tile, in pixels.
        patch_size: side of a patch, in pixels.
        downsample_factor: patches along one side of a token.
        min_tiles: the fewest tiles of an image that is cut.
        max_tiles: the most; one as both: no image is cut.
        min_image_tokens: the fewest tokens of a resized image.
        max_image_tokens: the most.
        max_pixels_tolerance: how many times the most tokens' pixels an image may have uncut.
        thumbnail: whether a cut image has a thumbnail; the engine counts one always.
        split: whether large images are cut; the engine counts them as cut either way.
        image: text of the image token.
        start: text of the token that opens an image.
        end: text of the token that closes it.
        thumbnail_tag: text of the token in front of the thumbnail.
        tile: text of the tag of a tile, from ``{row}`` and ``{col}``, which count from 1.
    """

    image_token_id: int
    tile_size: int
    patch_size: int
    downsample_factor: int
    min_tiles: int
    max_tiles: int
    min_image_tokens: int
    max_image_tokens: int
    max_pixels_tolerance: float
    thumbnail: Literal[True]
    split: bool
    image: str
    start: str
    end: str
    thumbnail_tag: str
    tile: str

    def max_embeds(self, _: CachePlan) -> int:
        """The engine plans with an image that is not cut."""
        if self.tile_size % self.patch_size:
            raise ValueError(f"tiles must be of a multiple of {self.patch_size} pixels")
        side = int(math.sqrt(self.max_image_tokens * self._unit**2))
        return sum(self._counts(ImageSize(side, side)))

    @property
    def _unit(self) -> int:
        """Side of a token, in pixels."""
        return self.patch_size * self.downsample_factor

    def with_overrides(self, overrides: Overrides) -> ThumbnailTiles:
        """All numbers of tiles and tokens."""
        refuse_scoped(overrides.processor)
        given = read_kwargs(
            overrides.processor,
            *_COUNTS, *_NEEDED, "max_pixels_tolerance", "do_image_splitting", "do_resize", "size",
        )  # fmt: skip
        switch(given, "do_resize", default=True)
        check_true(given, *_NEEDED)
        size = given.get("size")
        long = isinstance(size, Mapping) and "longest_edge" in size
        check_size(given, edge="longest_edge" if long else "shortest_edge")
        tolerance = given.get("max_pixels_tolerance", self.max_pixels_tolerance)
        if type(tolerance) is not float:
            raise refused("max_pixels_tolerance", tolerance, "a number with a decimal point")
        counts: dict[str, Any] = {
            field: positive_count(given, name, getattr(self, field))
            for name, field in _COUNTS.items()
        }
        split = switch(given, "do_image_splitting", default=self.split)
        changed = replace(self, **counts, max_pixels_tolerance=tolerance, split=split)
        if changed.tile_size % changed.patch_size:
            raise refused("tile_size", changed.tile_size, f"a multiple of {changed.patch_size}")
        if changed.max_tiles > MOST_TILES:
            raise refused("max_tiles", changed.max_tiles, f"at most {MOST_TILES}")
        if split and changed.min_tiles > changed.max_tiles:
            raise refused("min_tiles", changed.min_tiles, f"at most {changed.max_tiles}")
        return changed

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        grids = [self.grid(image) for image in items]
        for image, grid in zip(items, grids, strict=True):
            self._check_padding(image, cut=grid > (1, 1), alone=len(items) == 1)
        for image, (columns, rows) in zip(items, grids, strict=True):
            text = context.encode(self._text(columns, rows))
            yield repeated(text, self.image_token_id, self._counts(image))

    def _check_padding(self, image: ImageSize, *, cut: bool, alone: bool) -> None:
        """Refuse what the processor cannot stack: it pads all tiles and images to one length."""
        if cut and not alone and not self.split:
            raise InexactError(
                Reason.UNSUPPORTED_PROCESSOR_KWARGS,
                "with do_image_splitting false the engine takes the sizes of one image for "
                "another's if it would cut one of several images",
            )
        padded = self.max_image_tokens * self.downsample_factor**2
        if self.split:
            padded = max(padded, (self.tile_size // self.patch_size) ** 2)
        patches = self._resized(image) * self.downsample_factor**2
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
        return closest_grid(
            image, tile_size=self.tile_size, min_tiles=self.min_tiles, max_tiles=self.max_tiles
        )

    def _counts(self, image: ImageSize) -> list[int]:
        """Features of each tile and of the thumbnail, or of the image that is not cut."""
        columns, rows = self.grid(image)
        side = math.ceil(self.tile_size // self.patch_size / self.downsample_factor)
        tiles = columns * rows if columns * rows > 1 else 0
        return [*[side * side] * tiles, self._resized(image)]

    def _resized(self, image: ImageSize) -> int:
        """Tokens of the image after its smart resize, whose sides are a token long at least."""
        rows, columns = smart_resize(
            image.height,
            image.width,
            factor=self._unit,
            min_pixels=self.min_image_tokens * self._unit**2,
            max_pixels=self.max_image_tokens * self._unit**2,
            least_rounded=1,
        )
        return rows * columns

    def _text(self, columns: int, rows: int) -> str:
        """The replacement with one image token for each tile.

        Two tiles are ``START<row_1_col_1>IMAGE<row_1_col_2>IMAGE<thumbnail>IMAGE END``, an image
        that is not cut ``START IMAGE END``, both without spaces.
        """
        tags = [
            self.tile.format(row=row, col=column)
            for row in range(1, rows + 1)
            for column in range(1, columns + 1)
        ]
        tags = [*tags, self.thumbnail_tag] if len(tags) > 1 else [""]
        return "".join([self.start, *(f"{tag}{self.image}" for tag in tags), self.end])
