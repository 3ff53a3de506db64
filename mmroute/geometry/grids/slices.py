"""MiniCPM-V and MiniCPM-o: the whole image, and slices of it.

The grid of slices has about as many as the image has times a slice's area, and the aspect
ratio that is closest on a logarithmic scale. Sources: transformers
``models/minicpmv4_6/image_processing_minicpmv4_6.py``, vLLM
``model_executor/models/minicpmv.py``, ``minicpmv4_6.py`` and ``minicpmv4_7.py``. Checked with
both, and with the image processors that come with MiniCPM-V 2.5 and MiniCPM-o 2.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class Slices(OneByOne[ImageSize]):
    """Counts the tokens of the whole image and of its slices."""

    slice_size: int
    patch_size: int
    max_slices: int
    planned_side: int
    downsample: str = "16x"
    planned_slices: int | None = None
    fixed_tokens: int | None = None
    sliced: bool = True
    refused_heights: tuple[int, ...] = ()
    merges_at: int = -1
    processed_slices: int | None = None

    def largest_item(self, _: CachePlan) -> list[ImageSize]:
        height = self.planned_side * (self.planned_slices or self.max_slices)
        return [ImageSize(self.planned_side, height)]

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of slices; (0, 0) if the image is not sliced."""
        wanted = math.ceil(image.width * image.height / self.slice_size**2)
        slices = min(wanted, self.max_slices)
        if slices <= 1:
            return 0, 0
        log_ratio = math.log(image.width / image.height)
        best, best_error = (1, 1), math.inf
        for count in (slices - 1, slices, slices + 1):
            if count == 1 or count > self.max_slices:
                continue
            for rows in range(1, count + 1):
                columns, rest = divmod(count, rows)
                if rest:
                    continue
                error = abs(log_ratio - math.log(columns / rows))
                if error < best_error or (error == best_error and rows > best[0]):
                    best, best_error = (rows, columns), error
        return best

    def count(self, image: ImageSize) -> Count:
        if image.height in self.refused_heights:
            raise image_refused(image, "its processor takes the height for a number of channels")
        rows, columns = self.grid(image) if self.sliced else (0, 0)
        if self.fixed_tokens is not None:
            return Count(rows, columns, self.fixed_tokens, self.fixed_tokens)
        per_token = 4 if self.downsample == "4x" else 16
        sides = self._sides(image, rows, columns)
        whole, part = (height * width // per_token for height, width in sides)
        return Count(rows, columns, part, whole) if rows else Count(whole=whole)

    def parts(self, image: ImageSize) -> list[tuple[int, int]]:
        processed = replace(self, max_slices=self.processed_slices or self.max_slices)
        rows, columns = processed.grid(image) if self.sliced else (0, 0)
        whole, part = self._sides(image, rows, columns)
        return [whole] + [part] * (rows * columns)

    def merges(self, _: ImageSize) -> list[bool]:
        return [self.downsample != "4x" and self.merges_at >= 0]

    def _sides(
        self, image: ImageSize, rows: int, columns: int
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of patches of the whole image, and of a slice if there are any."""
        whole = self._patches(image.height, image.width, enlarge=not rows)
        if not rows:
            return whole, whole
        height, width = _multiple(image.height, rows), _multiple(image.width, columns)
        return whole, self._patches(height / rows, width / columns, enlarge=True)

    def _patches(self, height: float, width: float, *, enlarge: bool) -> tuple[int, int]:
        merged = 4 if self.fixed_tokens is None else 1  # both merges, whatever the mode
        return scaled(height, width, self.slice_size, self.patch_size, merged, enlarge=enlarge)


def scaled(
    height: float, width: float, slice_size: int, patch_size: int, merged: int, *, enlarge: bool
) -> tuple[int, int]:
    """Rows and columns of patches after a resize to about a slice's area.

    Smaller images grow only if told to.
    """
    if enlarge or height * width > slice_size**2:
        aspect = width / height
        height = int(slice_size / math.sqrt(aspect))
        width = int(height * aspect)
    side = patch_size * merged
    return _multiple(height, side) // side * merged, _multiple(width, side) // side * merged


def _multiple(length: float, divisor: int) -> int:
    """The multiple of a divisor that is nearest, half to even, and at least one of it."""
    return max(round(length / divisor) * divisor, divisor)
