"""Nemotron Nano Omni: patch grids that share one budget, the length of the context.

The engine counts images before it knows their text, and only those that its processor cache
does not hold. So the budget depends on the request alone as long as all images together keep
it; beyond, the answer depends on the requests before, and there is no exact one.

Source: vLLM ``transformers_utils/processors/nano_nemotron_vl.py``
(`DynamicResolutionImageTiler`). Checked with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.replacement import ModelContext
from mmroute.requests.items import ImageSize

_RESERVED: Final = 4
_MERGE: Final = 2  # patches along one side of a token; the engine takes no other downsample_ratio


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """Resizes the images of a request so that their patches together keep within one budget."""

    patch_size: int
    min_patches: int
    max_patches: int

    def largest_item(self, plan: CachePlan) -> int:
        """A square in all of the context beside one token of text, whatever images may have."""
        return math.isqrt(max(0, plan.max_model_len - _RESERVED - 1)) ** 2

    def counts(self, items: Sequence[ImageSize], context: ModelContext) -> Iterable[Count]:
        budget = (context.max_model_len - _RESERVED) * _MERGE**2
        share = max(min(budget, self.max_patches), self.min_patches)
        counts = [
            _count(image.width, image.height, share, self.min_patches, self.patch_size)
            for image in items
        ]
        patches = sum(rows * columns for rows, columns, *_ in counts) * _MERGE**2
        if max(patches, self.min_patches * len(items)) > budget:
            raise InexactError(
                Reason.BUDGET_EXCEEDED,
                f"the images have {patches} patches together; beyond {budget} the engine shrinks "
                "them, by a factor that depends on its cache. Send fewer or smaller images.",
            )
        return counts

    def resized(self, count: Count) -> tuple[int, int]:
        side = _MERGE * self.patch_size
        return count.rows * side, count.columns * side


@lru_cache(maxsize=4096)
def _count(width: int, height: int, share: int, min_patches: int, patch_size: int) -> Count:
    """The tokens of an image whose patches are within a share of the budget."""
    rows, columns = round(height / patch_size + 0.5), round(width / patch_size + 0.5)
    factor = min(math.sqrt(share / (rows * columns)), 1.0)
    rows, columns = math.floor(factor * rows), math.floor(factor * columns)
    if not rows * columns:
        raise image_refused(f"{width}x{height}", "scaled to its budget, a side has no patch left")
    if share > min_patches and rows * columns < min_patches:
        grow = math.sqrt(min_patches / (rows * columns))
        rows, columns = math.ceil(grow * rows), math.ceil(grow * columns)
    rows = _even(rows, columns, share)
    return Count(rows // _MERGE, _even(columns, rows, share) // _MERGE)


def _even(length: int, other: int, share: int) -> int:
    """An even number of patches: one more if the share allows it, else one fewer."""
    rest = length % _MERGE
    if not rest:
        return length
    more = length + _MERGE - rest
    return more if more * other <= share else max(_MERGE, length - rest)
