"""Muse Glimmer: the patch grid closest to the image's aspect ratio under a token limit.

Sources: transformers ``models/muse_glimmer/image_processing_muse_glimmer.py``
(`smart_resize`), vLLM ``model_executor/models/muse_glimmer.py``. Checked with both.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class AspectPatches(OneByOne[ImageSize]):
    """The patch grid closest to an image's aspect ratio.

    Attributes:
        patch_size: side of a patch, in pixels.
        merge_size: patches along one side of what the image processor makes one token.
        counted_merge_size: patches along one side of what the engine counts as one token.
        max_image_tokens: the most tokens of an image.
    """

    patch_size: int
    merge_size: int
    counted_merge_size: int
    max_image_tokens: int

    def max_embeds(self, _: CachePlan) -> int:
        return self.max_image_tokens

    def count(self, image: ImageSize) -> Count:
        side = self.patch_size * self.merge_size
        rows, columns = image.height / side, image.width / side
        if rows * columns > self.max_image_tokens:
            aspect = columns / rows
            rows = (self.max_image_tokens / aspect) ** 0.5
            columns = rows * aspect
        grids = [
            (r, c)
            # Of equally close grids the engine takes the first in the order of this very set.
            for r, c in set(itertools.product(_around(rows), _around(columns)))
            if min(r, c) >= 1 and r * c <= self.max_image_tokens
        ] or [(max(1, round(rows)), max(1, round(columns)))]
        best = min(grids, key=lambda grid: abs(grid[0] / grid[1] - image.height / image.width))
        return Count(whole=best[0] * best[1] * self.merge_size**2 // self.counted_merge_size**2)


def _around(length: float) -> tuple[int, int]:
    return math.floor(length), math.ceil(length)
