"""HunyuanOCR and Hunyuan-VL: a smart resize, one token more for each row, two for the image.

Sources: transformers 5.20.2 ``models/hunyuan_vl/processing_hunyuan_vl.py``, which vLLM 0.33.0
``model_executor/models/transformers/multimodal.py`` counts by. Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

from mmroute.geometry.processor_kwargs import switch
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.geometry.smart_resize import SmartResize
from mmroute.requests.items import ImageSize

_LARGE_SIDE: Final = 10_000


@dataclass(frozen=True, slots=True)
class RowEndResize(SmartResize):
    """Counts image tokens after a smart resize, row ends among them.

    Attributes:
        frame: whether each image has two more, one in front of its rows and one behind.
    """

    frame: bool = True

    def max_embeds(self, _: CachePlan) -> int:
        """The engine's estimate for families without a rule: the better of two squares."""
        sides = math.isqrt(self.max_pixels), _LARGE_SIDE
        return max(self.count(ImageSize(side, side)) for side in sides)

    def with_overrides(self, overrides: Overrides) -> Self:
        """Those of the resize, and whether there are two tokens more."""
        changed = SmartResize.with_overrides(self, overrides)
        frame = switch(overrides.processor, "cat_extra_token", default=self.frame)
        return replace(changed, frame=frame)

    def count(self, image: ImageSize) -> int:
        rows, columns = self.grid(image)
        return rows * (columns + 1) + 2 * self.frame
