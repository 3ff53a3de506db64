"""DeepSeek-V4 and V4.1: cells of patches in rows, within a budget that row ends count in.

Source: vLLM ``models/deepseek_v4/common/mm_preprocess.py`` and
``models/deepseek_v41/common/mm_preprocess.py`` (``load_image``, ``safe_resize``,
``solve_resize_ratio``). Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

_ALIGNMENT: Final = 3  # tokens of the budget that V4 keeps for the start of an image


@dataclass(frozen=True, slots=True)
class CellRows(OneByOne[ImageSize]):
    """Resizes an image within a budget of tokens, and counts rows and columns of cells."""

    patch_size: int
    cell_size: int
    max_tokens: int
    min_pixels: int
    max_aspect: float | None = None
    paired: bool = False

    def largest_item(self, _: CachePlan) -> int:
        return self.max_tokens + _ALIGNMENT * self.paired

    def count(self, image: ImageSize) -> Count:
        rows, columns = self.cells(image)
        return Count(rows, columns) if self.paired else Count(rows, columns + 1, whole=2)

    def cells(self, image: ImageSize) -> tuple[int, int]:
        return self._cells(self.patch_rows(image))

    def _cells(self, patches: tuple[int, int]) -> tuple[int, int]:
        rows, columns = patches
        return -(-rows // self.cell_size), -(-columns // self.cell_size)

    def patch_rows(self, image: ImageSize) -> tuple[int, int]:
        width: float = image.width
        height: float = image.height
        if self.max_aspect is not None and width > height * self.max_aspect:
            width = height * self.max_aspect
        if width * height < self.min_pixels:
            ratio = (self.min_pixels / (width * height)) ** 0.5
            width, height = int(width * ratio), int(height * ratio)
        patches = math.ceil(height / self.patch_size), math.ceil(width / self.patch_size)
        limit = budget = self.max_tokens - _ALIGNMENT * self.paired
        while width * height and self._tokens(*self._cells(patches)) > limit:
            if budget <= 0:
                raise image_refused(image, "it cannot be shrunk to the budget of tokens")
            patches = self._shrunk(height, width, budget)
            budget -= 1
        if not math.prod(patches):
            raise image_refused(image, "a side has no patch left")
        return patches

    def _tokens(self, rows: int, columns: int) -> int:
        """Tokens of an image; pairs of rows are filled up to a multiple of four."""
        if not self.paired:
            return rows * (columns + 1) + 2
        pairs = -(-rows // 2)
        return 2 * pairs * (columns + 1) + 2 + pairs * (columns + 1) % 2 * 2

    def _shrunk(self, height: float, width: float, budget: int) -> tuple[int, int]:
        """Rows and columns of patches of an image that is shrunk to about so many tokens."""
        step = 2 if self.paired else 1
        aspect = height / width
        most_columns = math.sqrt(max(0, budget - 2) / aspect + 0.25) - 0.5
        most_rows = most_columns * aspect
        if most_columns < 1:
            return (budget - 2) // 2 // step * step * self.cell_size, self.cell_size
        if most_rows < step:
            return step * self.cell_size, ((budget - 2) // step - 1) * self.cell_size
        cell = self.patch_size * self.cell_size
        scale = min(
            math.floor(most_columns) * cell / width,
            math.floor(most_rows) // step * step * cell / height,
        )
        rows, columns = (math.floor(side * scale / self.patch_size) for side in (height, width))
        return rows, columns
