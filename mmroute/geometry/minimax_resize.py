"""MiniMax-M3: a resize by area, or by the long side where the model or a request says so.

Source: vLLM 0.33.0 ``transformers_utils/processors/minimax_m3.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.errors import image_refused
from mmroute.geometry.filled_images import FramedImages
from mmroute.geometry.known_kwargs import is_count
from mmroute.geometry.processor_kwargs import check_unscoped, positive_count, read_kwargs, refused
from mmroute.geometry.replacement import CachePlan, Overrides
from mmroute.geometry.smart_resize import check_aspect, resizes, smart_resize, unresized
from mmroute.requests.items import ImageSize

# Constants of the processor, which neither files nor requests change.
_MIN_PIXELS: Final = 4 * 28 * 28
_MIN_SHORT_SIDE: Final = 112
_MAX_TOTAL_PIXELS: Final = 12_845_056
_OF_VIDEOS: Final = ("max_frames", "min_frames", "min_pixels", "total_pixels")


@dataclass(frozen=True, slots=True)
class MiniMaxResize(FramedImages):
    """Image tokens between a start and an end token.

    Attributes:
        patch_size: pixels along one side of a patch.
        merge_size: patches along one side of a token.
        max_pixels: largest area after the resize, in pixels.
        max_long_side: longest side after the resize, in pixels; where given, areas do not count.
        resize: whether images are resized at all.
    """

    patch_size: int
    merge_size: int
    max_pixels: int
    max_long_side: int | None = None
    resize: bool = True

    @property
    def _factor(self) -> int:
        return self.patch_size * self.merge_size

    def max_embeds(self, _: CachePlan) -> int:
        """A square image."""
        if self.max_long_side is None:
            side = math.isqrt(self.max_pixels)
        else:
            side = min(self.max_long_side, math.isqrt(_MAX_TOTAL_PIXELS))
        return max(1, side // self._factor) ** 2

    def with_overrides(self, overrides: Overrides) -> MiniMaxResize:
        """``size`` and options of videos are only checked."""
        kwargs = dict(overrides.processor)
        for name in ("do_resize", "padding"):
            if name in kwargs:
                raise refused(name, kwargs[name], "absent for this model")
        for name in _OF_VIDEOS:
            positive_count({name: kwargs.pop(name, 1)}, name, 1)
        given = read_kwargs(
            kwargs,
            "max_pixels", "max_long_side_pixel", "size", "patch_size", "merge_size",
            "temporal_patch_size", "do_resize",
        )  # fmt: skip
        check_unscoped(kwargs, "merge_size")
        _check_size(given)
        positive_count(given, "temporal_patch_size", 1)
        long_side = self.max_long_side
        if "max_long_side_pixel" in given:
            long_side = positive_count(given, "max_long_side_pixel", 1)
        return replace(
            self,
            max_pixels=positive_count(given, "max_pixels", self.max_pixels),
            max_long_side=long_side,
            patch_size=positive_count(given, "patch_size", self.patch_size),
            merge_size=positive_count(given, "merge_size", self.merge_size),
            resize=resizes(given, default=self.resize),
        )

    def count(self, image: ImageSize) -> int:
        height, width = image.height, image.width
        if not self.resize:
            rows, columns = unresized(image, self._factor)
        elif self.max_long_side is None:
            rows, columns = grid_by_area(
                height, width, factor=self._factor, max_pixels=self.max_pixels
            )
        else:
            rows, columns = self._by_long_side(height, width, self.max_long_side)
        return rows * columns

    def _by_long_side(self, height: int, width: int, longest: int) -> tuple[int, int]:
        check_aspect(height, width)
        scale = 1.0
        if max(height, width) > longest:
            scale = longest / max(height, width)
        elif min(height, width) < _MIN_SHORT_SIDE:
            scale = _MIN_SHORT_SIDE / min(height, width)
        rows = max(1, round(height * scale / self._factor))
        columns = max(1, round(width * scale / self._factor))
        if rows * columns * self._factor**2 > _MAX_TOTAL_PIXELS:
            why = f"after the resize it has more than {_MAX_TOTAL_PIXELS} pixels"
            raise image_refused(f"{width}x{height}", why)
        return rows, columns


def grid_by_area(height: int, width: int, *, factor: int, max_pixels: int) -> tuple[int, int]:
    """Rows and columns of tokens after the resize by area, of an image or a frame; all in pixels.

    Raises:
        InexactError: `image_refused` if one side is more than 200 times the other, or becomes 0.
    """
    check_aspect(height, width)
    return smart_resize(
        height,
        width,
        factor=factor,
        min_pixels=_MIN_PIXELS,
        max_pixels=max_pixels,
        least_rounded=1,
        least_shrunk=0,
    )


def _check_size(given: dict[str, Any]) -> None:
    """Accept the forms of a ``size`` that were seen to be accepted."""
    size = given.get("size", 1)
    forms = ({"height", "width"}, {"shortest_edge"}, {"longest_edge"},
             {"shortest_edge", "longest_edge"})  # fmt: skip
    sides = list(size.values()) if isinstance(size, dict) and set(size) in forms else [size]
    if not all(map(is_count, sides)):
        raise refused("size", size, "a side, or an object of sides or edges")
