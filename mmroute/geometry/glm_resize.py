"""GLM-V: a smart resize whose limits hold for all frames of a patch, also for one image.

Images with a side shorter than a token are scaled up first. Sources: transformers 5.20.2
``models/glm4v/image_processing_glm4v.py``, which GLM-4.6V and GLM-OCR share, and vLLM 0.33.0
``model_executor/models/glm4_1v.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mmroute.geometry.filled_images import FilledImages
from mmroute.geometry.processor_kwargs import (
    check_unscoped,
    positive_count,
    read_kwargs,
    size_limits,
)
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.geometry.smart_resize import (
    enlarge_to_factor,
    resizes,
    smart_resize,
    unresized,
)
from mmroute.items import ImageSize

__all__ = ["GlmResize"]

_ENGINES_LARGEST: Final = ImageSize(9_999_999, 9_999_999)


@dataclass(frozen=True, slots=True)
class GlmResize(FilledImages):
    """Counts image tokens after GLM's resize.

    Attributes:
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        temporal_patch_size: frames of a patch; an image counts as that many.
        min_pixels: smallest area of all frames together after the resize, in pixels.
        max_pixels: largest area likewise.
        resize: whether images are resized at all.
    """

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    max_pixels: int
    resize: bool = True

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
        return replace(
            self,
            min_pixels=lowest,
            max_pixels=highest,
            patch_size=positive_count(given, "patch_size", self.patch_size),
            merge_size=positive_count(given, "merge_size", self.merge_size),
            temporal_patch_size=positive_count(
                given, "temporal_patch_size", self.temporal_patch_size
            ),
            resize=resizes(given, default=self.resize),
        )

    def count(self, image: ImageSize) -> int:
        factor = self.patch_size * self.merge_size
        if self.resize:
            height, width = enlarge_to_factor(image.height, image.width, factor)
            rows, columns = smart_resize(
                height,
                width,
                factor=factor,
                min_pixels=self.min_pixels,
                max_pixels=self.max_pixels,
                frames=self.temporal_patch_size,
            )
        else:
            rows, columns = unresized(image, factor)
        return rows * columns
