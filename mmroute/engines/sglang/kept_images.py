"""Images for which SGLang's prompts keep one token each: LLaVA-1.5.

Its processor gives the scheduler the first image alone. What the scheduler then writes in place of
its token holds numbers that only the decoded image tells.
Source: SGLang 0.5.23 ``srt/multimodal/processors/llava.py``, ``srt/models/llava.py``
(`pad_input_ids`), ``srt/multimodal/mm_utils.py`` (`unpad_image_shape`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count
from mmroute.geometry.grids.anyres import AnyRes, best_resolution
from mmroute.geometry.replacement import ModelContext
from mmroute.placement.expansion import Expansion, Insertion, PlaceholderRange, match_targets
from mmroute.requests.items import ImageSize
from mmroute.token_ids import TokenIds

_ONE: Final = Count(whole=1)


@dataclass(frozen=True, slots=True)
class KeptImages(AnyRes):
    """Counts one token, and refuses a first image whose best resolution has no tile."""

    def __post_init__(self) -> None:
        """The resolutions may be smaller than a tile."""

    def largest_item(self, _: CachePlan) -> int:
        return _ONE.total

    def counts(self, images: Sequence[ImageSize], _: ModelContext) -> list[Count]:
        if images and self.pinpoints:
            height, _width = best_resolution(images[0], self.pinpoints)
            if height < self.image_size:
                raise image_refused(images[0], f"a resolution of {height} rows has no tile")
        return [_ONE] * len(images)


@dataclass(frozen=True, slots=True)
class KeptPlaceholders:
    """Placement that leaves each placeholder as it is. No position receives features."""

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        placed = [
            PlaceholderRange(insertions[index].item, start, stop - start, ((False, stop - start),))
            for index, start, stop in match_targets(ids, insertions)
        ]
        return Expansion(ids, tuple(placed))
