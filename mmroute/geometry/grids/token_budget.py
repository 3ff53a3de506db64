"""GLM-5.3: both sides are rounded up, and the image is shrunk until its tokens fit a budget.

Source: transformers ``models/glm5_next/image_processing_glm5_next.py``, by the processor
of which vLLM ``models/glm5next/common/multimodal.py`` counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.geometry.grids.smart_resize import check_aspect
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class TokenBudget(MergedPatches):
    """Resizes an image by GLM-5.3's rule, and counts rows and columns of tokens."""

    expand_factor: int
    min_tokens: int
    max_tokens: int
    limits_aspect: bool = False

    @property
    def _factor(self) -> int:
        return self.factor * self.expand_factor

    def largest_item(self, _: CachePlan) -> int:
        return self.max_tokens * self.expand_factor**2

    def count(self, image: ImageSize) -> Count:
        height, width, factor = image.height, image.width, self._factor
        if self.limits_aspect:
            check_aspect(height, width)
        rows, columns = math.ceil(height / factor), math.ceil(width / factor)
        if rows * columns < self.min_tokens:
            grow = math.sqrt(self.min_tokens * factor**2 / (height * width))
            rows = math.ceil(math.ceil(height * grow) / factor)
            columns = math.ceil(math.ceil(width * grow) / factor)
        if rows * columns > self.max_tokens:
            rows, columns = self._within_budget(height, width)
        return Count(rows * self.expand_factor, columns * self.expand_factor)

    def _within_budget(self, height: int, width: int) -> tuple[int, int]:
        """The largest height that fits with the width it brings, found by halving."""
        low, high, best = 1, height, (1, 1)
        while low <= high:
            middle = (low + high) // 2
            rows = math.ceil(middle / self._factor)
            columns = math.ceil(max(1, math.floor(width * middle / height)) / self._factor)
            if rows * columns <= self.max_tokens:
                best, low = (rows, columns), middle + 1
            else:
                high = middle - 1
        return best
