"""Gemma 3: a fixed number of soft tokens between start, end and blank lines.

With pan-and-scan, which a request or the model's configuration can switch on, crops follow,
with words between them. Source: vLLM 0.33.0 ``model_executor/models/gemma3_mm.py``,
transformers 5.20.2 ``models/gemma3/processing_gemma3.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.errors import image_refused
from mmroute.geometry.framed_runs import FramedRun, framed_runs
from mmroute.geometry.known_kwargs import is_count, is_switch
from mmroute.geometry.processor_kwargs import check_size, read_kwargs, refused
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement
from mmroute.requests.items import ImageSize

# Name in a request -> field, and the values that were seen to be accepted.
_PAN_AND_SCAN: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "do_pan_and_scan": ("pan_and_scan", is_switch),
    "pan_and_scan_min_crop_size": ("min_crop_size", is_count),
    "pan_and_scan_max_num_crops": ("max_num_crops", is_count),
    "pan_and_scan_min_ratio_to_activate": (
        "min_ratio",
        lambda value: type(value) is float and value > 0,
    ),
}


@dataclass(frozen=True, slots=True)
class SoftTokens:
    """Builds the replacement of an image and its crops.

    An image (f: its features) is ``blank_line start f end blank_line``; with two crops it is
    ``before_crops start f end before_first_crop start f end between_crops start f end blank_line``.

    Attributes:
        image_token_id: a feature position.
        start_token_id: what opens an image.
        end_token_id: what closes it.
        tokens_per_image: feature positions of an image or a crop.
        blank_line: token IDs of the blank line around an image.
        before_crops: token IDs of the words before an image that has crops.
        before_first_crop: token IDs of the words between such an image and its crops.
        between_crops: token IDs between two crops.
        pan_and_scan: whether images are cut into crops at all.
        min_crop_size: the smallest side of a crop, in pixels.
        max_num_crops: the most crops.
        min_ratio: the smallest aspect ratio that is cut.
        one_shape: whether all images are resized to one shape; the processor stacks them.
    """

    image_token_id: int
    start_token_id: int
    end_token_id: int
    tokens_per_image: int
    blank_line: tuple[int, ...]
    before_crops: tuple[int, ...]
    before_first_crop: tuple[int, ...]
    between_crops: tuple[int, ...]
    pan_and_scan: bool
    min_crop_size: int
    max_num_crops: int
    min_ratio: float
    one_shape: bool = True

    def max_embeds(self, _: CachePlan) -> int:
        crops = self.max_num_crops if self.pan_and_scan else 0
        return (crops + 1) * self.tokens_per_image

    def with_overrides(self, overrides: Overrides) -> SoftTokens:
        given = read_kwargs(overrides.processor, "size", *_PAN_AND_SCAN)
        size = check_size(given, edge="shortest_edge")
        changes: dict[str, Any] = {"one_shape": "shortest_edge" not in size}
        for name, (field, accepts) in _PAN_AND_SCAN.items():
            if name in given:
                if not accepts(given[name]):
                    raise refused(name, given[name], f"of the kind that {field} is")
                changes[field] = given[name]
        return replace(self, **changes)

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        crops = [self.num_crops(image) for image in items]
        shapes = {(image.width, image.height) for image in items}
        if not self.one_shape and (len(shapes) > 1 or any(crops)):
            why = "with a shortest_edge in mm_processor_kwargs.size the processor cannot stack them"
            raise image_refused("images of several shapes", why)
        return map(self._replacement, crops)

    def num_crops(self, image: ImageSize) -> int:
        """How many crops an image gets; 0 if it is not cut."""
        long, short = max(image.width, image.height), min(image.width, image.height)
        if not self.pan_and_scan or long / short < self.min_ratio:
            return 0
        wanted = min(math.floor(long / self.min_crop_size), math.floor(long / short + 0.5))
        crops = min(self.max_num_crops, max(2, wanted))
        return 0 if min(math.ceil(long / crops), short) < self.min_crop_size else crops

    def _replacement(self, crops: int) -> Replacement:
        texts = [self.blank_line]
        if crops:
            texts = [self.before_crops, self.before_first_crop]
            texts += [self.between_crops] * (crops - 1)
        runs = [
            FramedRun([*text, self.start_token_id], self.tokens_per_image, [self.end_token_id])
            for text in texts
        ]
        return framed_runs(self.image_token_id, runs, closing=self.blank_line)
