"""Both sides become multiples of a factor, and the area is kept inside limits: Qwen-VL's resize.

The engine counts several families by a function of this form; they differ in what is done to short
sides, what a side must have at least, and what stands beside the rows. Sources: transformers
``models/qwen2_vl/image_processing_qwen2_vl.py`` (`smart_resize`),
``models/glm4v/image_processing_glm4v.py``, which GLM-4.6V and GLM-OCR share,
``models/emu3/image_processing_emu3.py``, ``models/emu3/processing_emu3.py``,
``models/paddleocr_vl/image_processing_paddleocr_vl.py`` and
``models/hunyuan_vl/processing_hunyuan_vl.py``; vLLM ``model_executor/models/qwen2_vl.py``,
``glm4_1v.py``, ``paddleocr_vl.py``, ``model_executor/models/transformers/multimodal.py``,
``models/dots3_note/common/processor.py`` (``resized_size``) and, for clipped sides,
``transformers_utils/processors/ovis2_5.py`` (``smart_resize``). Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from mmroute.errors import InexactError, Reason, image_refused
from mmroute.geometry.grid import CachePlan, Count, MergedPatches
from mmroute.requests.items import ImageSize

ShortSides: TypeAlias = Literal["kept", "enlarged", "enlarged_in_turn", "clipped"]

MAX_ASPECT: Final = 200
"""One side of an image is at most so many times the other."""
_CODE: Final = 8  # pixels along one side of a code of Emu3
_MOST_PIXELS: Final = 1 << 28  # 3 GB of numbers; Pillow reads no file of so many


class Resizing(Protocol):
    """A grid of images or videos that has the numbers of the resize."""

    @property
    def factor(self) -> int: ...
    @property
    def min_pixels(self) -> int: ...
    @property
    def max_pixels(self) -> int: ...
    @property
    def short_sides(self) -> ShortSides: ...
    @property
    def least_rounded(self) -> int: ...
    @property
    def least_shrunk(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SmartResize(MergedPatches):
    """Resizes an image as Qwen-VL does, and counts rows and columns of tokens."""

    min_pixels: int
    max_pixels: int
    resize: bool = True
    fixed_merge: int | None = None
    frames: int = 1
    short_sides: ShortSides = "kept"
    least_rounded: int = 0
    least_shrunk: int = 1
    counted_resized: bool = False
    row_ends: bool = False
    frame: bool = False
    shrinks_again: bool = False
    refused_part: int = 0
    planned: Literal["area", "pixels", "rectangle", "square", "squares", "request"] = "area"
    planned_side: int = 0
    planned_pixels: int = 0
    refused_heights: tuple[int, ...] = ()

    def largest_item(self, _: CachePlan) -> Iterable[ImageSize] | int:
        side, factor = self.planned_side, self.factor
        most = self.max_pixels // factor**2
        images = [ImageSize(side, side)]
        match self.planned:
            case "request":
                return images
            case "pixels":
                return self.planned_pixels // factor**2
            case "area":
                rows, columns = largest_rectangle(most)
                images = [ImageSize(columns * factor, rows * factor)]
            case "rectangle":
                rows = math.isqrt(most)
                images = [ImageSize(most // rows * factor, rows * factor)]
            case "squares":
                side = math.isqrt(self.max_pixels)
                images.append(ImageSize(side, side))
        # The plan has no image that is not resized. It has more tokens than `most` if the smallest
        # area is above the largest one.
        return max(replace(self, resize=True).count(image).total for image in images)

    def patches(self, image: ImageSize) -> tuple[int, int, int]:
        rows, columns = self._tokens(image)
        return 1, rows * self.merge_size, columns * self.merge_size

    def patch_count(self, image: ImageSize) -> int:
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
        rows = columns = 0
        if self.refused_part and min(image.height, image.width) < self.factor // self.refused_part:
            least = self.factor // self.refused_part
            raise image_refused(image, f"a side is shorter than {least} pixels")
        if not self.resize:
            rows, columns = unresized(image, self.factor)
        if self.resize or self.counted_resized:
            rows, columns = resized(
                image.height, image.width, self,
                frames=self.frames, shrinks_again=self.shrinks_again,
            )  # fmt: skip
        return rows, columns


@dataclass(frozen=True, slots=True)
class CodedRows(SmartResize):
    """Counts the codes of a resized image, and an end for each row: Emu3."""

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
        rows, columns = height // _CODE, width // _CODE
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
    """Rows and columns of tokens of an image that is not to be resized."""
    if image.height % factor or image.width % factor:
        raise image_refused(image, f"do_resize is false, and a side is no multiple of {factor}")
    return image.height // factor, image.width // factor


def check_aspect(height: int, width: int) -> None:
    """Refuse what the processors of this kind refuse."""
    if max(height, width) / min(height, width) > MAX_ASPECT:
        why = f"one side is more than {MAX_ASPECT} times the other"
        raise image_refused(f"{width}x{height}", why)


def enlarge_to_factor(height: int, width: int, factor: int) -> tuple[int, int]:
    """Height and width, scaled up if a side is shorter than the factor.

    >>> enlarge_to_factor(14, 100, 28)
    (28, 200)
    """
    if min(height, width) < factor:
        scale = max(factor / height, factor / width)
        return int(height * scale), int(width * scale)
    return height, width


def _clipped(height: int, width: int, factor: int) -> tuple[int, int]:
    """Height and width without a side shorter than the factor, or an aspect above the largest.

    >>> _clipped(14, 100, 28), _clipped(30, 9000, 28)
    ((28, 200), (30, 6000))
    """
    if min(height, width) >= factor:
        return min(height, MAX_ASPECT * width), min(width, MAX_ASPECT * height)
    if height < width:
        return factor, round(factor / height * width)
    return round(factor / width * height), factor


def resized(
    height: int,
    width: int,
    by: Resizing,
    *,
    frames: int = 1,
    counted: int = 0,
    as_they_are: bool = False,
    shrinks_again: bool = False,
) -> tuple[int, int]:
    """Rows and columns of tokens of an image or a frame, by the numbers of a grid.

    Sides that are taken as they are may be short, or of any aspect.
    """
    factor, rule = by.factor, by.short_sides
    if rule == "clipped":
        height, width = _clipped(height, width, factor)
    elif not as_they_are:
        if rule == "enlarged":
            height, width = enlarge_to_factor(height, width, factor)
        elif rule == "enlarged_in_turn":
            if height < factor:
                height, width = factor, round(width * factor / height)
            if width < factor:
                height, width = round(height * factor / width), factor
        check_aspect(height, width)
    return smart_resize(
        height,
        width,
        factor=factor,
        min_pixels=by.min_pixels,
        max_pixels=by.max_pixels,
        frames=frames,
        counted_frames=counted,
        least_rounded=by.least_rounded,
        least_shrunk=by.least_shrunk,
        shrinks_again=shrinks_again,
    )


def smart_resize(
    height: int,
    width: int,
    *,
    factor: int,
    min_pixels: int,
    max_pixels: int,
    frames: int = 1,
    counted_frames: int = 0,
    least_rounded: int = 0,
    least_shrunk: int = 1,
    shrinks_again: bool = False,
) -> tuple[int, int]:
    """Rows and columns of tokens after the resize.

    Python's `round` is half-to-even, and the engine relies on it: 720 is 22.5 times 32 and
    becomes 22 times.

    >>> smart_resize(720, 1280, factor=32, min_pixels=65536, max_pixels=16777216)
    (22, 40)
    """
    unit = factor * factor
    rows = max(least_rounded, round(height / factor))
    columns = max(least_rounded, round(width / factor))
    volume = (counted_frames or frames) * rows * columns * unit
    if volume > max_pixels:
        shrink = math.sqrt(frames * height * width / max_pixels)
        rows = max(least_shrunk, math.floor(height / shrink / factor))
        columns = max(least_shrunk, math.floor(width / shrink / factor))
    elif volume < min_pixels:
        grow = math.sqrt(min_pixels / (frames * height * width))
        rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
        if shrinks_again and (grown := rows * columns * unit) > max_pixels:
            shrink = math.sqrt(grown / max_pixels)
            rows = max(1, math.floor(rows * factor / shrink / factor))
            columns = max(1, math.floor(columns * factor / shrink / factor))
    area = rows * columns * unit
    if not area:
        raise image_refused(f"{width}x{height}", "a side becomes 0")
    if area > _MOST_PIXELS:
        raise InexactError(
            Reason.ITEM_TOO_LARGE,
            f"{width}x{height} would be resized to {area} pixels, for which an engine hardly has "
            "the memory",
        )
    return rows, columns
