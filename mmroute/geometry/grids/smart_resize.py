"""Both sides become multiples of a factor, and the area is kept inside limits: Qwen-VL's resize.

The engine counts several families by a function of this form; they differ in what is done to short
sides, what a side must have at least, and what stands beside the rows. Sources: transformers
``models/qwen2_vl/image_processing_qwen2_vl.py`` (`smart_resize`),
``models/glm4v/image_processing_glm4v.py``, which GLM-4.6V and GLM-OCR share,
``models/emu3/image_processing_emu3.py``, ``models/emu3/processing_emu3.py``,
``models/paddleocr_vl/image_processing_paddleocr_vl.py`` and
``models/hunyuan_vl/processing_hunyuan_vl.py``; vLLM ``model_executor/models/qwen2_vl.py``,
``glm4_1v.py``, ``paddleocr_vl.py`` and ``model_executor/models/transformers/multimodal.py``.
Checked with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.requests.items import ImageSize

MAX_ASPECT: Final = 200
"""One side of an image is at most so many times the other."""
_MOST_PIXELS: Final = 1 << 28  # 3 GB of numbers; Pillow reads no file of so many


@dataclass(frozen=True, slots=True)
class SmartResize(MergedPatches):
    """Resizes an image as Qwen-VL does, and counts rows and columns of tokens.

    Attributes:
        min_pixels: the smallest area after the resize, in pixels.
        max_pixels: the largest area after the resize, in pixels.
        resize: whether images are resized at all.
        fixed_merge: the number of patches along one side of a token that a request's ``merge_size``
            does not change: it changes only what both sides are multiples of. None: it changes
            both.
        frames: the number of frames that an image counts as. The limits hold for all together.
        short_sides: the first step for an image with a side shorter than a token: ``kept`` does
            nothing, ``enlarged`` scales both sides up, ``enlarged_in_turn`` one after the other.
        least_rounded: the fewest tokens along a side that is rounded to the nearest.
        least_shrunk: the fewest tokens along a side that is shrunk to stay within `max_pixels`.
        counted_resized: whether the engine counts as if all images were resized.
        row_ends: whether each row has one token more.
        frame: whether an image with row ends has two more, in front of its rows and behind.
        planned: the image that the engine plans its encoder cache with. ``area``: one of the
            largest area. ``rectangle``: one that is nearly a square. ``square``: a square that is
            resized. ``squares``: the better of two squares. ``request``: a square that counts as
            a request's image does.
        planned_side: the side of the square of `planned`, or of one of the two, in pixels.
        refused_heights: the heights in pixels that the processor takes for a number of channels.
    """

    min_pixels: int
    max_pixels: int
    resize: bool = True
    fixed_merge: int | None = None
    frames: int = 1
    short_sides: Literal["kept", "enlarged", "enlarged_in_turn"] = "kept"
    least_rounded: int = 0
    least_shrunk: int = 1
    counted_resized: bool = False
    row_ends: bool = False
    frame: bool = False
    planned: Literal["area", "rectangle", "square", "squares", "request"] = "area"
    planned_side: int = 0
    refused_heights: tuple[int, ...] = ()

    def max_embeds(self, _: CachePlan) -> int:
        most = self.max_pixels // self.factor**2
        side = self.planned_side
        resized = replace(self, resize=True)  # the plan has no image that is not
        match self.planned:
            case "area":
                rows, columns = largest_rectangle(most)
                image = ImageSize(columns * self.factor, rows * self.factor)
            case "rectangle":
                rows = math.isqrt(most)
                image = ImageSize(most // rows * self.factor, rows * self.factor)
            case "square":
                image = ImageSize(side, side)
            case "squares":
                sides = math.isqrt(self.max_pixels), side
                return max(resized.count(ImageSize(side, side)).total for side in sides)
            case "request":
                return self.count(ImageSize(side, side)).total
        # It has more tokens if the smallest area is above the largest one.
        return resized.count(image).total

    def patches(self, image: ImageSize) -> tuple[int, int, int]:
        """Frames, rows and columns of patches."""
        rows, columns = self._tokens(image)
        return 1, rows * self.merge_size, columns * self.merge_size

    def patch_count(self, image: ImageSize) -> int:
        """The number of patches."""
        return math.prod(self.patches(image))

    def count(self, image: ImageSize) -> Count:
        if image.height in self.refused_heights:
            raise image_refused(image, "its processor takes the height for a number of channels")
        rows, columns = self._tokens(image)
        if self.fixed_merge is not None:
            return Count(whole=rows * columns * self.merge_size**2 // self.fixed_merge**2)
        if self.row_ends:
            return Count(rows, columns + 1, whole=2 * self.frame)
        return Count(rows, columns)

    def _tokens(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of tokens."""
        factor = self.factor
        rows = columns = 0
        if not self.resize:
            rows, columns = unresized(image, factor)
        if self.resize or self.counted_resized:
            rows, columns = self._resized(image.height, image.width, factor)
        return rows, columns

    def _resized(self, height: int, width: int, factor: int) -> tuple[int, int]:
        if self.short_sides == "enlarged":
            height, width = enlarge_to_factor(height, width, factor)
        elif self.short_sides == "enlarged_in_turn":
            if height < factor:
                height, width = factor, round(width * factor / height)
            if width < factor:
                height, width = round(height * factor / width), factor
        check_aspect(height, width)
        return smart_resize(
            height,
            width,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            frames=self.frames,
            least_rounded=self.least_rounded,
            least_shrunk=self.least_shrunk,
        )


@dataclass(frozen=True, slots=True)
class CodedRows(SmartResize):
    """Counts the codes of a resized image, and an end for each row: Emu3.

    Attributes:
        code_size: the number of pixels along one side of a code.
    """

    code_size: int = 8

    def patch_count(self, image: ImageSize) -> int:
        """The number of arrays that the processor makes of the image."""
        return 1

    def count(self, image: ImageSize) -> Count:
        if image.height in self.refused_heights:
            raise InexactError(
                Reason.IMAGE_REFUSED,
                f"{image}: the engine's processor takes the height for a number of channels, "
                "unless it gets another image first, which depends on its cache",
            )
        check_aspect(image.height, image.width)
        height, width = image.height, image.width
        if self.resize:
            rows, columns = self._tokens(image)
            height, width = rows * self.factor, columns * self.factor
        rows, columns = height // self.code_size, width // self.code_size
        return Count(rows, columns, whole=rows)


def largest_rectangle(most: int) -> tuple[int, int]:
    """Rows and columns of the largest image of at most so many tokens that is not too thin.

    >>> largest_rectangle(439)  # a prime number
    (6, 73)
    """
    for tokens in range(most, 0, -1):
        rows = next(side for side in range(math.isqrt(tokens), 0, -1) if tokens % side == 0)
        if tokens <= MAX_ASPECT * rows**2:
            return rows, tokens // rows
    return 1, 1


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
    if max(height, width) / min(height, width) > MAX_ASPECT:
        why = f"one side is more than {MAX_ASPECT} times the other"
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
        height: the height of the image, in pixels.
        width: the width of the image, in pixels.
        factor: the number of pixels along one side of a token; both sides become multiples of it.
        min_pixels: the smallest area of all frames together.
        max_pixels: the largest area of all frames together.
        frames: the number of frames of this size.
        counted_frames: the number of frames that are compared with the limits; None: all of them.
        least_rounded: the fewest tokens along a side that is rounded to the nearest.
        least_shrunk: the fewest along a side that is shrunk to stay within `max_pixels`.

    Python's `round` is half-to-even, and the engine relies on it: 720 is 22.5 times 32 and
    becomes 22 times.

    >>> smart_resize(720, 1280, factor=32, min_pixels=65536, max_pixels=16777216)
    (22, 40)

    Raises:
        InexactError: `image_refused` if a side becomes 0; `item_too_large` if the area needs
            gigabytes: a request with a large ``merge_size`` asks for few tokens of a huge picture.
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
    area = rows * columns * factor**2
    if not area:
        raise image_refused(f"{width}x{height}", "a side becomes 0")
    if area > _MOST_PIXELS:
        raise InexactError(
            Reason.ITEM_TOO_LARGE,
            f"{width}x{height} would be resized to {area} pixels, for which an engine hardly has "
            "the memory",
        )
    return rows, columns
