"""LLaVA: the outputs of a vision encoder, and the best of several resolutions, unpadded.

Sources: transformers ``image_processing_utils.py`` (`select_best_resolution`), vLLM
``model_executor/models/llava.py``, ``llava_next.py``, ``llava_onevision.py``,
``granite4_vision.py``, ``clip.py``, ``siglip.py`` and ``vision.py``
(`get_num_selected_vision_tokens`). Checked with both. Single precision is that of the
crate llm-multimodal, compared with a running frontend that has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from mmroute.errors import image_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.requests.items import ImageSize

VisionEncoder = Literal["clip_vision_model", "siglip_vision_model"]
SelectStrategy = Literal["default", "full", "class"]

_CLASS_TOKENS: Final[Mapping[str, int]] = {"clip_vision_model": 1, "siglip_vision_model": 0}
_SHRINK_ABOVE: Final = 1.1


@dataclass(frozen=True, slots=True)
class AnyRes(OneByOne[ImageSize]):
    """Counts the outputs for the whole image, and those of its tiles, unpadded, by rows."""

    vision_encoder: VisionEncoder
    image_size: int
    patch_size: int
    select_strategy: SelectStrategy
    pinpoints: tuple[tuple[int, int], ...] | None = None
    max_tiles: int | None = None
    largest: tuple[int, int] | None = None
    downsample_rate: str = "1"
    single_precision: bool = False
    crop_size: int | None = None

    def __post_init__(self) -> None:
        if self.pinpoints is None:
            return
        if not self.pinpoints or min(map(min, self.pinpoints)) < self.image_size:
            raise ValueError(f"resolutions of at least {self.image_size} pixels a side")

    def largest_item(self, _: CachePlan) -> int:
        if self.largest is not None:
            return self._count(ImageSize(*self.largest)).total
        sizes = self.pinpoints or [(self.image_size, self.image_size)]
        return max(self._count(ImageSize(width, height)).total for height, width in sizes)

    def count(self, image: ImageSize) -> Count:
        if self.crop_size is not None and self.pinpoints is not None:
            number = np.float32 if self.single_precision else float
            height, _ = best_resolution(image, self.pinpoints, number)
            if height < self.crop_size:
                raise image_refused(image, f"no crop of {self.crop_size} rows fits in {height}")
        return self._count(image)

    def _count(self, image: ImageSize) -> Count:
        grid = _grid(self.image_size, self.patch_size, self.downsample_rate)
        base = selected_tokens(self.vision_encoder, grid, self.select_strategy)
        if self.pinpoints is None:
            return Count(whole=base)
        number = np.float32 if self.single_precision else float
        height, width = best_resolution(image, self.pinpoints, number)
        rows, columns = grid * (height // self.image_size), grid * (width // self.image_size)
        unpadded = rounded_grid if self.single_precision else unpadded_grid
        rows, columns = unpadded(image, rows=rows, columns=columns)
        if self.max_tiles is not None:
            ratio = math.sqrt(rows * columns / (self.max_tiles * grid**2))
            if ratio > _SHRINK_ABOVE:
                rows, columns = int(rows // ratio), int(columns // ratio)
        return Count(rows, columns + 1, whole=base)


@lru_cache(maxsize=64)
def _grid(image_size: int, patch_size: int, downsample_rate: str) -> int:
    """Tokens along one side of the encoder's input; to read a fraction takes long."""
    return int(image_size // patch_size * Fraction(downsample_rate))


def best_resolution(
    image: ImageSize,
    pinpoints: Sequence[tuple[int, int]],
    number: Callable[[int], Any] = float,
) -> tuple[int, int]:
    """The (height, width) that keeps most of the image's pixels, then wastes least; else the first.

    An image so thin that no resolution keeps a pixel of it is not refused: the smallest is taken.

    >>> best_resolution(ImageSize(640, 480), [(336, 672), (672, 336), (672, 672)])
    (672, 672)
    """

    def fit(resolution: tuple[int, int]) -> tuple[int, int]:
        height, width = resolution
        scale = min(number(width) / number(image.width), number(height) / number(image.height))
        scaled = int(number(image.width) * scale) * int(number(image.height) * scale)
        kept = min(scaled, image.width * image.height)
        return kept, kept - width * height

    return max(pinpoints, key=fit)


def unpadded_grid(image: ImageSize, *, rows: int, columns: int) -> tuple[int, int]:
    """The patch grid without the rows or columns that are only padding.

    >>> unpadded_grid(ImageSize(640, 480), rows=48, columns=48)
    (36, 48)
    """
    if image.width / image.height > columns / rows:
        kept = int(round(image.height * (columns / image.width), 7))
        return rows - 2 * ((rows - kept) // 2), columns
    kept = int(round(image.width * (rows / image.height), 7))
    return rows, columns - 2 * ((columns - kept) // 2)


def rounded_grid(image: ImageSize, *, rows: int, columns: int) -> tuple[int, int]:
    """The same as `unpadded_grid`, in single precision, rounded to the nearest integer.

    >>> rounded_grid(ImageSize(500, 10), rows=24, columns=96)
    (2, 96)
    """
    width, height, across, down = map(np.float32, (image.width, image.height, columns, rows))
    if width / height > across / down:
        return rows - 2 * int((down - _nearest(height * (across / width))) // 2), columns
    return rows, columns - 2 * int((across - _nearest(width * (down / height))) // 2)


def _nearest(value: np.float32) -> int:
    """The nearest integer; of a half the greater one."""
    return math.floor(float(value) + 0.5)


def selected_tokens(encoder: VisionEncoder, grid: int, strategy: SelectStrategy) -> int:
    """The number of a vision encoder's outputs that become image tokens.

    >>> selected_tokens("clip_vision_model", 24, "default")
    576
    >>> selected_tokens("siglip_vision_model", 27, "full")
    729
    """
    tokens = grid * grid + _CLASS_TOKENS[encoder]
    return {"default": tokens - 1, "full": tokens, "class": 1}[strategy]
