"""Kimi: images keep their size within limits of patches, and are padded up to whole tokens.

Sources: vLLM 0.33.0 ``transformers_utils/processors/kimi_k25_vision_fused.py``
(`navit_resize_image`), ``model_executor/models/kimi_k25.py`` and
``models/kimi_k3/common/mm_preprocess.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.processor_kwargs import check_unread, refused
from mmroute.geometry.replacement import Overrides, Replacement, RequestContext, fill
from mmroute.items import ImageSize

__all__ = ["Navit", "NavitWithSize"]

_ENGINES_LARGEST: Final = ImageSize(3000, 3000)


@dataclass(frozen=True, slots=True)
class Navit:
    """Counts image tokens.

    Attributes:
        image_token_id: the fill.
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        max_patches: the most patches of an image.
        max_patches_per_side: the most patches along one side.
        fixed_tokens: tokens of every image, where they do not depend on its size.
    """

    image_token_id: int
    patch_size: int
    merge_size: int
    max_patches: int
    max_patches_per_side: int
    fixed_tokens: int | None = None

    @property
    def max_embeds(self) -> int:
        """A square, which is not the largest image there is."""
        return self.count(_ENGINES_LARGEST)

    def with_overrides(self, overrides: Overrides) -> Navit:
        """A request changes nothing."""
        check_kwargs(overrides.processor)
        return self

    def replacements(
        self, items: Sequence[ImageSize], context: RequestContext
    ) -> Iterator[Replacement]:
        return (fill(self.image_token_id, self.count(image)) for image in items)

    def count(self, image: ImageSize) -> int:
        """The number of image tokens."""
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


@dataclass(frozen=True, slots=True)
class NavitWithSize:
    """Image tokens between words that tell the image's own size.

    Attributes:
        image_token_id: a feature position.
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        max_patches: the most patches of an image.
        max_patches_per_side: the most patches along one side.
        opening: what stands before the image tokens, with ``{width}`` and ``{height}`` in pixels.
        closing: token IDs behind them.
        fixed_tokens: tokens of every image, where they do not depend on its size.
    """

    image_token_id: int
    patch_size: int
    merge_size: int
    max_patches: int
    max_patches_per_side: int
    opening: str
    closing: tuple[int, ...]
    fixed_tokens: int | None = None

    @property
    def _navit(self) -> Navit:
        return Navit(
            self.image_token_id,
            self.patch_size,
            self.merge_size,
            self.max_patches,
            self.max_patches_per_side,
            self.fixed_tokens,
        )

    @property
    def max_embeds(self) -> int:
        """The most of all numbers of patches along both sides."""
        navit, patch, most = self._navit, self.patch_size, self.max_patches_per_side
        sides = [min((patches + 1) * patch - 1, most * patch) for patches in range(most + 1)]
        return max(
            navit.count(ImageSize(width, height))
            for index, width in enumerate(sides)
            for height in sides[index:]
        )

    def with_overrides(self, overrides: Overrides) -> NavitWithSize:
        """A request changes nothing."""
        check_kwargs(overrides.processor)
        return self

    def replacements(
        self, items: Sequence[ImageSize], context: RequestContext
    ) -> Iterator[Replacement]:
        navit = self._navit
        return (self._replacement(image, navit.count(image), context) for image in items)

    def _replacement(self, image: ImageSize, count: int, context: RequestContext) -> Replacement:
        opening = context.encode(self.opening.format(width=image.width, height=image.height))
        run = FramedRun(opening.tolist(), count, self.closing)
        return framed_runs(self.image_token_id, [run])


def check_kwargs(kwargs: Mapping[str, Any]) -> None:
    """Refuse what breaks the engine's own processor, which reads none of a request's kwargs.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    check_unread(kwargs)
    if kwargs.get("return_tensors", "pt") != "pt":
        raise refused("return_tensors", kwargs["return_tensors"], '"pt" or absent')
