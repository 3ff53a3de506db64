"""Gemma 4: an image is scaled to a budget of soft tokens, both sides to multiples of a unit.

The unit is one soft token: a square of pooled patches. Source: vLLM 0.33.0
``model_executor/models/gemma4_mm.py`` and ``gemma4_unified.py`` (`_compute_num_soft_tokens`).
transformers counts very thin images otherwise, but the engine's own count is the one that it
expands by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from mmroute.geometry.filled_images import FramedImages
from mmroute.geometry.processor_kwargs import check_absent, check_size, read_kwargs, refused
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.requests.items import ImageSize

BUDGETS: Final = (70, 140, 280, 560, 1120)
"""What a request may ask for outside of ``videos_kwargs``."""


@dataclass(frozen=True, slots=True)
class PatchBudget(FramedImages):
    """Counts soft tokens between a start and an end token.

    Attributes:
        patch_size: pixels along one side of a patch.
        pooling_size: patches along one side of a soft token.
        max_soft_tokens: the budget of an image.
    """

    patch_size: int
    pooling_size: int
    max_soft_tokens: int

    def max_embeds(self, _: CachePlan) -> int:
        return self.max_soft_tokens

    def with_overrides(self, overrides: Overrides) -> PatchBudget:
        """One of the budgets that the engine knows."""
        check_absent(overrides.processor, "do_center_crop", "patch_size", "pooling_kernel_size")
        given = read_kwargs(
            overrides.processor, "max_soft_tokens", "size", of_videos=("max_soft_tokens",)
        )
        check_size(given, edge="longest_edge")
        budget = given.get("max_soft_tokens", self.max_soft_tokens)
        if type(budget) is not int or ("max_soft_tokens" in given and budget not in BUDGETS):
            raise refused("max_soft_tokens", budget, f"one of {', '.join(map(str, BUDGETS))}")
        return replace(self, max_soft_tokens=budget)

    def count(self, image: ImageSize) -> int:
        return soft_tokens(
            image.height,
            image.width,
            patch_size=self.patch_size,
            pooling_size=self.pooling_size,
            budget=self.max_soft_tokens,
        )


def soft_tokens(height: int, width: int, *, patch_size: int, pooling_size: int, budget: int) -> int:
    """The number of soft tokens of an image or a frame.

    >>> soft_tokens(720, 1280, patch_size=16, pooling_size=3, budget=280)
    264
    """
    unit = patch_size * pooling_size
    scale = math.sqrt(budget * pooling_size**2 / ((height / patch_size) * (width / patch_size)))
    rows = max(1, math.floor(height * scale / unit))
    columns = max(1, math.floor(width * scale / unit))
    return min(rows * columns, budget)
