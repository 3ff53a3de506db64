"""Pixtral and Mistral 3: rows of patches, each closed by a break token, the last by an end.

The Hugging Face form rounds scaled sides down, Mistral's own rounds them half to even and
keeps at least one pixel. Sources: vLLM 0.33.0 ``model_executor/models/pixtral.py`` and
``mistral3.py``; mistral-common 1.13.1 ``tokens/tokenizers/image.py``. Checked with all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from mmroute.errors import image_refused
from mmroute.geometry.filled_images import OneByOne
from mmroute.geometry.processor_kwargs import check_size, check_unread, read_kwargs
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement, rows
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class PatchRows(OneByOne[ImageSize]):
    """Counts rows and columns of patches after scaling into a square.

    Attributes:
        image_token_id: a feature position.
        break_token_id: what closes a row.
        end_token_id: what closes the last row.
        max_side: the longest side that is not scaled, in pixels.
        patch_size: side of a patch, in pixels.
        merge_size: patches along one side of a token.
        rounding: of scaled sides: ``down``, or ``half_even`` with at least one pixel.
        overrides: of a request's processor kwargs: ``ignored``; ``checked`` by the processor,
            to no effect; or ``size``: its ``longest_edge`` replaces ``max_side``.
    """

    image_token_id: int
    break_token_id: int
    end_token_id: int
    max_side: int
    patch_size: int
    merge_size: int = 1
    rounding: Literal["down", "half_even"] = "down"
    overrides: Literal["ignored", "checked", "size"] = "checked"

    def max_embeds(self, _: CachePlan) -> int:
        columns, count = self.grid(ImageSize(self.max_side, self.max_side))
        return columns * count

    def with_overrides(self, overrides: Overrides) -> PatchRows:
        if self.overrides == "ignored":
            check_unread(overrides.processor)
            return self
        size = check_size(read_kwargs(overrides.processor, "size"), edge="longest_edge")
        if self.overrides == "checked" or "longest_edge" not in size:
            return self
        return replace(self, max_side=size["longest_edge"])

    def replacement(self, image: ImageSize, _: ModelContext) -> Replacement:
        columns, count = self.grid(image)
        return rows(
            image_id=self.image_token_id,
            break_id=self.break_token_id,
            end_id=self.end_token_id,
            columns=columns,
            count=count,
        )

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Columns and rows of image tokens.

        Raises:
            InexactError: `image_refused` if a scaled side has no pixel left.
        """
        width, height = image.width, image.height
        ratio = max(width / self.max_side, height / self.max_side)
        if ratio > 1 and self.rounding == "half_even":
            width, height = max(round(width / ratio), 1), max(round(height / ratio), 1)
        elif ratio > 1:
            width, height = math.floor(width / ratio), math.floor(height / ratio)
            if width == 0 or height == 0:
                why = f"scaled to {self.max_side} pixels, the short side has no pixel left"
                raise image_refused(image, why)
        side = self.patch_size * self.merge_size
        return (width - 1) // side + 1, (height - 1) // side + 1
