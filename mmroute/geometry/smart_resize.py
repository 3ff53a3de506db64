"""Both sides become multiples of a factor, and the area is kept inside limits: Qwen-VL's resize.

The engine counts several families by a function of this form; they differ in what a side must have
at least. Sources: transformers 5.20.2 ``models/qwen2_vl/image_processing_qwen2_vl.py``
(`smart_resize`), vLLM 0.33.0 ``model_executor/models/qwen2_vl.py``. Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Self

from mmroute.errors import image_refused
from mmroute.geometry.filled_images import FilledImages
from mmroute.geometry.known_kwargs import is_count
from mmroute.geometry.processor_kwargs import (
    SCOPES,
    check_unscoped,
    positive_count,
    read_kwargs,
    refused,
    switch,
)
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.requests.items import ImageSize

_MAX_ASPECT: Final = 200
_ALIASES: Final = (("shortest_edge", "min_pixels"), ("longest_edge", "max_pixels"))
_PIXELS: Final = ("min_pixels", "max_pixels")
_KWARGS: Final = (*_PIXELS, "size", "patch_size", "merge_size", "do_resize")
_OF_VIDEOS: Final = (
    *_PIXELS, "patch_size", "temporal_patch_size", "merge_size", "min_frames", "max_frames",
    "max_video_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResizedImages(FilledImages):
    """Images whose sides become multiples of a token's, and whose area is kept within limits.

    Attributes:
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        min_pixels: smallest area after the resize, in pixels.
        max_pixels: largest area.
        resize: whether images are resized at all.
    """

    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    resize: bool = True

    @property
    def factor(self) -> int:
        """Pixels along one side of a token."""
        return self.patch_size * self.merge_size

    def changed(self, given: Mapping[str, Any], lowest: int, highest: int) -> Self:
        """The same with other limits of the area, and patches and resize by a request's kwargs.

        Raises:
            InexactError: `unsupported_processor_kwargs`.
        """
        return replace(
            self,
            min_pixels=lowest,
            max_pixels=highest,
            patch_size=positive_count(given, "patch_size", self.patch_size),
            merge_size=positive_count(given, "merge_size", self.merge_size),
            resize=resizes(given, default=self.resize),
        )


@dataclass(frozen=True, slots=True)
class SmartResize(ResizedImages):
    """Counts image tokens after a smart resize.

    Attributes:
        keeps_partial_size: whether a request's ``size`` may give only one limit.
        fixed_merge: patches along one side of a token, where a request's ``merge_size`` changes
            only what both sides are multiples of; None where it changes both.
    """

    keeps_partial_size: bool = False
    fixed_merge: int | None = None

    def max_embeds(self, _: CachePlan) -> int:
        return self.max_pixels // self.factor**2

    def with_overrides(self, overrides: Overrides) -> Self:
        """Limits, patches, or no resize at all."""
        given = read_kwargs(overrides.processor, *_KWARGS, of_videos=_OF_VIDEOS)
        check_unscoped(overrides.processor, "merge_size")
        keeps = self.keeps_partial_size
        limits = pixel_limits(given, self.min_pixels, self.max_pixels, keeps_partial_size=keeps)
        return self.changed(given, *limits)

    def count(self, image: ImageSize) -> int:
        rows, columns = self.grid(image)
        if self.fixed_merge is None:
            return rows * columns
        return rows * columns * self.merge_size**2 // self.fixed_merge**2

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of tokens.

        Raises:
            InexactError: `image_refused`.
        """
        if not self.resize:
            return unresized(image, self.factor)
        return _checked_grid(
            image.height, image.width, self.factor, self.min_pixels, self.max_pixels
        )


@lru_cache(maxsize=4096)  # most images have the size of others
def _checked_grid(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    check_aspect(height, width)
    return smart_resize(height, width, factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)


def pixel_limits(
    given: Mapping[str, Any], lowest: int, highest: int, *, keeps_partial_size: bool
) -> tuple[int, int]:
    """Smallest and largest area: ``min_pixels`` and ``max_pixels`` win over ``size``.

    Args:
        given: kwargs of a request.
        lowest: the model's own smallest area, in pixels.
        highest: the largest one.
        keeps_partial_size: whether ``size`` may give only one limit.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    limits = {"shortest_edge": lowest, "longest_edge": highest}
    merged: dict[str, Any] = limits
    if "size" in given:
        size = given["size"]
        if not isinstance(size, Mapping) or not size or not size.keys() <= limits.keys():
            raise refused("size", size, 'an object of "shortest_edge" and "longest_edge"')
        merged = {**(limits if keeps_partial_size else {}), **size}
    for edge, alias in _ALIASES:
        if alias in given:
            merged[edge] = given[alias]
        if not is_count(merged.get(edge)):
            raise refused(alias, merged.get(edge), f"a positive integer (or size.{edge})")
    return merged["shortest_edge"], merged["longest_edge"]


def with_pixel_limits(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The kwargs of a request with the pixel limits that each ``size`` in them stands for.

    Source: vLLM 0.33.0 ``model_executor/models/qwen2_vl.py``
    (`_complete_mm_processor_size_aliases`), which comes before the merge with the engine's own.

    >>> with_pixel_limits({"size": {"longest_edge": 50176}})
    {'max_pixels': 50176, 'size': {'longest_edge': 50176}}
    """
    completed = {
        name: with_pixel_limits(value) if name in SCOPES and isinstance(value, Mapping) else value
        for name, value in kwargs.items()
    }
    size = kwargs.get("size")
    limits = {
        alias: size[edge]
        for edge, alias in _ALIASES
        if isinstance(size, Mapping) and size.get(edge) is not None
    }
    return limits | completed


def resizes(given: Mapping[str, Any], *, default: bool) -> bool:
    """Whether some kwargs leave images resized; null is off.

    Raises:
        InexactError: `unsupported_processor_kwargs`.
    """
    if given.get("do_resize", default) is None:
        return False
    return switch(given, "do_resize", default=default)


def unresized(image: ImageSize, factor: int) -> tuple[int, int]:
    """Rows and columns of tokens of an image that is not to be resized.

    Raises:
        InexactError: `image_refused` unless both sides are multiples of the factor.
    """
    if image.height % factor or image.width % factor:
        raise image_refused(image, f"do_resize is false, and a side is no multiple of {factor}")
    return image.height // factor, image.width // factor


def check_aspect(height: int, width: int) -> None:
    """Refuse what the processors of this kind refuse.

    Raises:
        InexactError: `image_refused` if one side is more than 200 times the other.
    """
    if max(height, width) / min(height, width) > _MAX_ASPECT:
        why = f"one side is more than {_MAX_ASPECT} times the other"
        raise image_refused(f"{width}x{height}", why)


def enlarge_to_factor(height: int, width: int, factor: int) -> tuple[int, int]:
    """Height and width, scaled up if a side is shorter than the factor.

    Raises:
        InexactError: as `check_aspect`, of what comes out.

    >>> enlarge_to_factor(14, 100, 28)
    (28, 200)
    """
    if min(height, width) < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    check_aspect(height, width)
    return height, width


def smart_resize(
    height: int,
    width: int,
    *,
    factor: int,
    min_pixels: int,
    max_pixels: int,
    frames: int = 1,
    counted_frames: int | None = None,
    least_rounded: int = 0,
    least_shrunk: int = 1,
) -> tuple[int, int]:
    """Rows and columns of tokens after the resize.

    Args:
        height: of the image, in pixels.
        width: likewise.
        factor: pixels along one side of a token; both sides become multiples of it.
        min_pixels: smallest area of all frames together.
        max_pixels: largest area likewise.
        frames: how many frames there are of this size.
        counted_frames: how many are compared with the limits; None: all of them.
        least_rounded: the fewest tokens along a side that is rounded to the nearest.
        least_shrunk: the fewest along a side that is shrunk to stay within `max_pixels`.

    Python's `round` is half-to-even, and the engine relies on it: 720 is 22.5 times 32 and
    becomes 22 times.

    >>> smart_resize(720, 1280, factor=32, min_pixels=65536, max_pixels=16777216)
    (22, 40)

    Raises:
        InexactError: `image_refused` if a side becomes 0.
    """
    rows = max(least_rounded, round(height / factor))
    columns = max(least_rounded, round(width / factor))
    volume = (counted_frames or frames) * rows * columns * factor**2
    if volume > max_pixels:
        shrink = math.sqrt(frames * height * width / max_pixels)
        rows = max(least_shrunk, math.floor(height / shrink / factor))
        columns = max(least_shrunk, math.floor(width / shrink / factor))
    elif volume < min_pixels:
        grow = math.sqrt(min_pixels / (frames * height * width))
        rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
    if not rows * columns:
        raise image_refused(f"{width}x{height}", "a side becomes 0")
    return rows, columns
