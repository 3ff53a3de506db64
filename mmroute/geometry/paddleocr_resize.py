"""PaddleOCR-VL: a smart resize after which short sides have been scaled up, one after the other.

The engine counts by the model's own configuration and a request's limits; what else a request
says to the image processor changes the features, and not the tokens. Sources: vLLM 0.33.0
``model_executor/models/paddleocr_vl.py``, transformers 5.20.2
``models/paddleocr_vl/image_processing_paddleocr_vl.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mmroute.geometry.processor_kwargs import (
    check_unscoped,
    positive_count,
    read_kwargs,
    size_limits,
)
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.geometry.smart_resize import (
    ResizedImages,
    check_aspect,
    resizes,
    smart_resize,
    unresized,
)
from mmroute.requests.items import ImageSize


@dataclass(frozen=True, slots=True)
class PaddleOcrResize(ResizedImages):
    """Counts image tokens after PaddleOCR-VL's resize, also where the image processor does none."""

    def max_embeds(self, _: CachePlan) -> int:
        """A rectangle that is nearly a square."""
        most = self.max_pixels // self.factor**2
        return most - most % math.isqrt(most)

    def with_overrides(self, overrides: Overrides) -> PaddleOcrResize:
        """Limits inside ``images_kwargs`` change no count."""
        names = ("size", "min_pixels", "max_pixels")
        others = ("patch_size", "merge_size", "temporal_patch_size")
        given = read_kwargs(overrides.processor, *names, *others, "do_resize")
        size_limits(given, 1, 1)
        for name in (*names[1:], *others):
            positive_count(given, name, 1)
        for name in names:
            if name in overrides.processor:
                check_unscoped(overrides.processor, name)
        counted = {n: v for n, v in overrides.processor.items() if n in names}
        lowest, highest = size_limits(counted, self.min_pixels, self.max_pixels)
        return replace(
            self,
            min_pixels=positive_count(counted, "min_pixels", lowest),
            max_pixels=positive_count(counted, "max_pixels", highest),
            resize=resizes(given, default=self.resize),
        )

    def count(self, image: ImageSize) -> int:
        factor = self.factor
        if not self.resize:
            unresized(image, factor)
        height, width = image.height, image.width
        if height < factor:
            height, width = factor, round(width * factor / height)
        if width < factor:
            height, width = round(height * factor / width), factor
        check_aspect(height, width)
        rows, columns = smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            least_shrunk=0,
        )
        return rows * columns
