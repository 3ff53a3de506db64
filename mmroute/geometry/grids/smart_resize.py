"""Both sides become multiples of a factor, and the area is kept inside limits: Qwen-VL's resize.

The engine counts several families by a function of this form; they differ in what a side must have
at least. Sources: transformers 5.20.2 ``models/qwen2_vl/image_processing_qwen2_vl.py``
(`smart_resize`), vLLM 0.33.0 ``model_executor/models/qwen2_vl.py``. Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

_MAX_ASPECT: Final = 200
_LARGE_SIDE: Final = 10_000
_GLMS_LARGEST: Final = ImageSize(9_999_999, 9_999_999)


@dataclass(frozen=True, slots=True)
class _ResizedImages(OneByOne[ImageSize]):
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


@dataclass(frozen=True, slots=True)
class SmartResize(_ResizedImages):
    """Rows and columns of tokens after a smart resize.

    Attributes:
        fixed_merge: patches along one side of a token, where a request's ``merge_size`` changes
            only what both sides are multiples of; None where it changes both.
    """

    fixed_merge: int | None = None

    def max_embeds(self, _: CachePlan) -> int:
        return self.max_pixels // self.factor**2

    def count(self, image: ImageSize) -> Count:
        factor = self.patch_size * self.merge_size
        if self.resize:
            count = _resized(image.height, image.width, factor, self.min_pixels, self.max_pixels)
        else:
            count = Count(*unresized(image, factor))
        if self.fixed_merge is None:
            return count
        return Count(whole=count.total * self.merge_size**2 // self.fixed_merge**2)


@dataclass(frozen=True, slots=True)
class RowEndResize(_ResizedImages):
    """HunyuanOCR and Hunyuan-VL: one token more for each row, and two for the image.

    Attributes:
        frame: whether each image has two more, one in front of its rows and one behind.

    Sources: transformers 5.20.2 ``models/hunyuan_vl/processing_hunyuan_vl.py``, which vLLM 0.33.0
    ``model_executor/models/transformers/multimodal.py`` counts by. Checked with both.
    """

    frame: bool = True

    def max_embeds(self, _: CachePlan) -> int:
        """The engine's estimate for families without a rule: the better of two squares."""
        sides = math.isqrt(self.max_pixels), _LARGE_SIDE
        return max(self.count(ImageSize(side, side)).total for side in sides)

    def count(self, image: ImageSize) -> Count:
        if self.resize:
            grid = _resized(
                image.height, image.width, self.factor, self.min_pixels, self.max_pixels
            )
        else:
            grid = Count(*unresized(image, self.factor))
        return Count(grid.rows, grid.columns + 1, whole=2 * self.frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmResize(_ResizedImages):
    """GLM-V: limits that hold for all frames of a patch, also for one image.

    Images with a side shorter than a token are scaled up first.

    Attributes:
        temporal_patch_size: frames of a patch; an image counts as that many, and the limits of the
            area are those of all together.

    Sources: transformers 5.20.2 ``models/glm4v/image_processing_glm4v.py``, which GLM-4.6V and
    GLM-OCR share, and vLLM 0.33.0 ``model_executor/models/glm4_1v.py``.
    """

    temporal_patch_size: int

    def max_embeds(self, _: CachePlan) -> int:
        """What the engine's largest square image has."""
        return replace(self, resize=True).count(_GLMS_LARGEST).total

    def count(self, image: ImageSize) -> Count:
        if not self.resize:
            return Count(*unresized(image, self.factor))
        height, width = enlarge_to_factor(image.height, image.width, self.factor)
        grid = smart_resize(
            height,
            width,
            factor=self.factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            frames=self.temporal_patch_size,
        )
        return Count(*grid)


@dataclass(frozen=True, slots=True)
class PaddleOcrResize(_ResizedImages):
    """PaddleOCR-VL: short sides are scaled up first, one after the other.

    The engine counts so where the image processor resizes nothing, too. Sources: vLLM 0.33.0
    ``model_executor/models/paddleocr_vl.py``, transformers 5.20.2
    ``models/paddleocr_vl/image_processing_paddleocr_vl.py``.
    """

    def max_embeds(self, _: CachePlan) -> int:
        """A rectangle that is nearly a square."""
        most = self.max_pixels // self.factor**2
        return most - most % math.isqrt(most)

    def count(self, image: ImageSize) -> Count:
        factor = self.factor
        if not self.resize:
            unresized(image, factor)
        height, width = image.height, image.width
        if height < factor:
            height, width = factor, round(width * factor / height)
        if width < factor:
            height, width = round(height * factor / width), factor
        check_aspect(height, width)
        grid = smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            least_shrunk=0,
        )
        return Count(*grid)


@lru_cache(maxsize=4096)  # most images have the size of others
def _resized(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> Count:
    check_aspect(height, width)
    grid = smart_resize(height, width, factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)
    return Count(*grid)


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
        height: side of the image, in pixels.
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
