"""Kimi: images keep their size within limits of patches, and are padded up to whole tokens.

Sources: vLLM 0.33.0 ``transformers_utils/processors/kimi_k25_vision_fused.py``
(`navit_resize_image`), ``model_executor/models/kimi_k25.py`` and
``models/kimi_k3/common/mm_preprocess.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

from mmroute.geometry.filled_images import FilledImages
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import SCOPES, check_unread, refused
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize

_ENGINES_LARGEST: Final = ImageSize(3000, 3000)
_SWITCHES: Final = frozenset({"do_normalize", "do_rescale"})


@dataclass(frozen=True, slots=True)
class Navit(FilledImages):
    """Counts image tokens.

    Attributes:
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        max_patches: the most patches of an image.
        max_patches_per_side: the most patches along one side.
        fixed_tokens: tokens of every image, where they do not depend on its size.
    """

    patch_size: int
    merge_size: int
    max_patches: int
    max_patches_per_side: int
    fixed_tokens: int | None = None

    def max_embeds(self, _: CachePlan) -> int:
        """A square, which is not the largest image there is."""
        return self.count(_ENGINES_LARGEST)

    def with_overrides(self, overrides: Overrides) -> Self:
        """A request changes nothing: the engine's own processor reads none of its kwargs.

        Inside a scope, the switches take the place of those that the engine itself gives to both.
        """
        check_unread(overrides.processor)
        for scope, scoped in overrides.processor.items():
            if scope == "vision_chunks":
                raise refused(scope, scoped, "absent")
            if scope in SCOPES and not _SWITCHES.isdisjoint(scoped):
                raise refused(scope, scoped, "without do_normalize and do_rescale")
        if overrides.processor.get("return_tensors", "pt") != "pt":
            raise refused("return_tensors", overrides.processor["return_tensors"], '"pt" or absent')
        return self

    def count(self, image: ImageSize) -> int:
        if self.fixed_tokens is not None:
            return self.fixed_tokens
        patch, longest = self.patch_size, self.max_patches_per_side * self.patch_size
        patches = max(1.0, image.width // patch) * max(1.0, image.height // patch)
        scale = min(
            1.0,
            math.sqrt(self.max_patches / patches),
            longest / image.width,
            longest / image.height,
        )
        width = min(max(1, int(image.width * scale)), longest)
        height = min(max(1, int(image.height * scale)), longest)
        factor = self.merge_size * patch
        return math.ceil(width / factor) * math.ceil(height / factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class NavitWithSize(Navit):
    """Image tokens between words that tell the image's own size.

    Attributes:
        opening: what stands before the image tokens, with ``{width}`` and ``{height}`` in pixels.
        closing: token IDs behind them.
    """

    opening: str
    closing: tuple[int, ...]

    def max_embeds(self, _: CachePlan) -> int:
        """The most of all numbers of patches along both sides."""
        patch, most = self.patch_size, self.max_patches_per_side
        sides = [min((patches + 1) * patch - 1, most * patch) for patches in range(most + 1)]
        return max(
            self.count(ImageSize(width, height))
            for index, width in enumerate(sides)
            for height in sides[index:]
        )

    def replacement(self, image: ImageSize, context: ModelContext) -> Replacement:
        opening = context.encode(self.opening.format(width=image.width, height=image.height))
        run = FramedRun(opening.tolist(), self.count(image), self.closing)
        return framed_runs(self.image_token_id, [run])
