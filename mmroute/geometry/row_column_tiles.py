"""Idefics3 and SmolVLM: tiles under row and column tags, row by row, then the whole image.

The longest side is scaled to a fixed length, and tiles of one size cover the result. The whole
replacement is a text that the engine encodes at once, so the line breaks between the last row and
the whole image are one token or two, as the vocabulary has it. Sources: transformers 5.20.2
``models/idefics3/image_processing_idefics3.py`` (`get_number_of_image_patches`), vLLM 0.33.0
``model_executor/models/idefics3.py`` and ``smolvlm.py``. Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.processor_kwargs import (
    check_true,
    positive_count,
    read_kwargs,
    refuse_scoped,
    refused,
    switch,
)
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement, repeated
from mmroute.requests.items import ImageSize

_MAX_SIDE: Final = 4096
_MOST_TILES: Final = 64  # in a row; an image of more fits no encoder cache


@dataclass(frozen=True, slots=True)
class RowColumnTiles(OneByOne[ImageSize]):
    """Counts tiles, and writes the text around them.

    Attributes:
        image_token_id: a feature position.
        tokens_per_tile: feature positions of a tile, and of the whole image.
        longest_edge: the longest side after scaling, in pixels.
        tile_size: side of a tile, in pixels.
        split: whether images are cut into tiles at all.
        image: text of the image token.
        fake: text of the token in front of each tile, and behind the last.
        whole: text of the tag of the whole image.
        tile: text of the tag of a tile, from ``{row}`` and ``{col}``, which count from 1.
    """

    image_token_id: int
    tokens_per_tile: int
    longest_edge: int
    tile_size: int
    split: bool
    image: str
    fake: str
    whole: str
    tile: str

    def max_embeds(self, _: CachePlan) -> int:
        """The engine plans with a square of one tile."""
        rows, columns = self.grid(ImageSize(self.tile_size, self.tile_size))
        return (rows * columns + 1) * self.tokens_per_tile

    def with_overrides(self, overrides: Overrides) -> RowColumnTiles:
        """Sizes of the image and its tiles, or no tiles."""
        refuse_scoped(overrides.processor)
        given = read_kwargs(
            overrides.processor,
            "size", "max_image_size", "image_seq_len",
            "do_image_splitting", "do_resize", "do_pad", "return_row_col_info",
        )  # fmt: skip
        switch(given, "do_resize", default=True)
        check_true(given, "do_pad", "return_row_col_info")
        changed = replace(
            self,
            tokens_per_tile=positive_count(given, "image_seq_len", self.tokens_per_tile),
            longest_edge=_longest_edge(given, "size", self.longest_edge),
            tile_size=_longest_edge(given, "max_image_size", self.tile_size),
            split=switch(given, "do_image_splitting", default=self.split),
        )
        if min(changed.longest_edge, _MAX_SIDE) > changed.tile_size * _MOST_TILES:
            raise refused(
                "max_image_size", changed.tile_size, f"for at most {_MOST_TILES} tiles in a row"
            )
        return changed

    def replacement(self, image: ImageSize, context: ModelContext) -> Replacement:
        rows, columns = self.grid(image)
        counts = [self.tokens_per_tile] * (rows * columns + 1)
        return repeated(context.encode(self._text(rows, columns)), self.image_token_id, counts)

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of tiles; (0, 0) if the image is not cut."""
        if not self.split:
            return 0, 0
        height, width = self._scaled(image)
        rows, columns = math.ceil(height / self.tile_size), math.ceil(width / self.tile_size)
        return (rows, columns) if max(rows, columns) > 1 else (0, 0)

    def _scaled(self, image: ImageSize) -> tuple[int, int]:
        """Height and width after scaling: the short side is made even before the last limit."""
        aspect = image.width / image.height
        longest = self.longest_edge
        if image.width >= image.height:
            height = int(longest / aspect)
            height, width = max(height + height % 2, 1), longest
        else:
            width = int(longest * aspect)
            height, width = longest, max(width + width % 2, 1)
        aspect = width / height
        if width >= height and width > _MAX_SIDE:
            height, width = max(int(_MAX_SIDE / aspect), 1), _MAX_SIDE
        elif height > width and height > _MAX_SIDE:
            height, width = _MAX_SIDE, max(int(_MAX_SIDE * aspect), 1)
        return height, width

    def _text(self, rows: int, columns: int) -> str:
        """The replacement with one image token for each tile.

        One row of two tiles is ``<fake><row_1_col_1><image><fake><row_1_col_2><image>``, an empty
        line, and ``<fake><global><image><fake>``.
        """
        whole = f"{self.fake}{self.whole}{self.image}{self.fake}"
        if not rows:
            return whole
        lines = (
            "".join(
                f"{self.fake}{self.tile.format(row=row, col=column)}{self.image}"
                for column in range(1, columns + 1)
            )
            for row in range(1, rows + 1)
        )
        return "\n".join([*lines, "", whole])


def _longest_edge(given: Mapping[str, Any], name: str, default: int) -> int:
    size = given.get(name, {"longest_edge": default})
    if not isinstance(size, Mapping) or size.keys() != {"longest_edge"}:
        raise refused(name, size, 'an object of "longest_edge"')
    return positive_count(size, "longest_edge", default)
