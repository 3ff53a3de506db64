"""GLM-V: a smart resize whose limits hold for all frames of a patch, also for one image.

Images with a side shorter than a token are scaled up first. Sources: transformers 5.20.2
``models/glm4v/image_processing_glm4v.py``, which GLM-4.6V and GLM-OCR share, and vLLM 0.33.0
``model_executor/models/glm4_1v.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mmroute.geometry.processor_kwargs import (
    check_unscoped,
    positive_count,
    read_kwargs,
    size_limits,
)
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.geometry.smart_resize import ResizedImages, enlarge_to_factor, smart_resize, unresized
from mmroute.requests.items import ImageSize

_ENGINES_LARGEST: Final = ImageSize(9_999_999, 9_999_999)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmResize(ResizedImages):
    """Counts image tokens after GLM's resize.

    Attributes:
        temporal_patch_size: frames of a patch; an image counts as that many, and the limits of the
            area are those of all together.
    """

    temporal_patch_size: int

    def max_embeds(self, _: CachePlan) -> int:
        """What the engine's largest square image has."""
        return replace(self, resize=True).count(_ENGINES_LARGEST)

    def with_overrides(self, overrides: Overrides) -> GlmResize:
        """``min_pixels`` and ``max_pixels`` have no effect."""
        given = read_kwargs(
            overrides.processor,
            "size", "patch_size", "merge_size", "temporal_patch_size", "do_resize",
            of_videos=("patch_size", "merge_size", "temporal_patch_size", "max_duration"),
        )  # fmt: skip
        check_unscoped(overrides.processor, "merge_size")
        lowest, highest = size_limits(given, self.min_pixels, self.max_pixels)
        frames = positive_count(given, "temporal_patch_size", self.temporal_patch_size)
        return replace(self.changed(given, lowest, highest), temporal_patch_size=frames)

    def count(self, image: ImageSize) -> int:
        if self.resize:
            height, width = enlarge_to_factor(image.height, image.width, self.factor)
            rows, columns = smart_resize(
                height,
                width,
                factor=self.factor,
                min_pixels=self.min_pixels,
                max_pixels=self.max_pixels,
                frames=self.temporal_patch_size,
            )
        else:
            rows, columns = unresized(image, self.factor)
        return rows * columns
