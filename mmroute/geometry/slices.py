"""MiniCPM-V 4.6 and 4.7: the whole image, then slices of it, behind the number of the image.

The grid of slices has about as many as the image has times a slice's area, and the aspect
ratio that is closest on a logarithmic scale. The engine encodes the whole replacement at once,
with the number as text. Sources: transformers 5.20.2
``models/minicpmv4_6/image_processing_minicpmv4_6.py``, vLLM 0.33.0
``model_executor/models/minicpmv4_6.py`` and ``minicpmv4_7.py``. Checked with both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from mmroute.geometry.known_kwargs import COMMON_NAMES, is_count, is_switch
from mmroute.geometry.processor_kwargs import check_known, positive_count, read_kwargs, refused
from mmroute.geometry.replacement import CachePlan, ModelContext, Overrides, Replacement, repeated
from mmroute.requests.items import ImageSize

_EDGES: Final = ({"shortest_edge"}, {"longest_edge"}, {"shortest_edge", "longest_edge"})


def _is_size(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and set(value) in ({"height", "width"}, *_EDGES)
        and all(map(is_count, value.values()))
    )


# What the image processor takes, and the engine's own count does not read.
_IGNORED: Final[Mapping[str, Callable[[object], bool]]] = {
    "scale_resolution": is_count,
    "size": _is_size,
    "slice_mode": is_switch,
    "use_image_id": is_switch,
}
_MOST_SLICES: Final = 1024  # an image of more fits no encoder cache
_OWN: Final = ("max_slice_nums", "downsample_mode")
_SCOPES: Final = ("images_kwargs", "videos_kwargs", "audio_kwargs")


@dataclass(frozen=True, slots=True)
class Slices:
    """Counts the tokens of the image and of its slices, and writes the text around them.

    Attributes:
        image_token_id: a feature position.
        slice_size: side of a square as large as a slice, in pixels.
        patch_size: side of a patch, in pixels.
        max_slices: the most slices.
        planned_side: side of the image the engine plans its memory with, in pixels; it is
            ``max_slices`` times as high.
        downsample: patches along one side of a token, squared: ``16x``, or ``4x``.
        image: text of the image token.
        image_start: text of the token in front of the whole image.
        image_end: text of the token behind it.
        slice_start: text of the token in front of a slice.
        slice_end: text of the token behind it.
        number_start: text of the token in front of the image's number.
        number_end: text of the token behind it.
    """

    image_token_id: int
    slice_size: int
    patch_size: int
    max_slices: int
    planned_side: int
    downsample: Literal["16x", "4x"]
    image: str
    image_start: str
    image_end: str
    slice_start: str
    slice_end: str
    number_start: str
    number_end: str

    def max_embeds(self, _: CachePlan) -> int:
        return sum(self.counts(ImageSize(self.planned_side, self.planned_side * self.max_slices)))

    def with_overrides(self, overrides: Overrides) -> Slices:
        """The most slices, and how far patches are merged."""
        check_known(overrides.processor, *COMMON_NAMES, *_OWN, *_IGNORED, *_SCOPES)
        for name, accepts in _IGNORED.items():
            if name in overrides.processor and not accepts(overrides.processor[name]):
                raise refused(name, overrides.processor[name], "of the kind it has in the files")
        given = read_kwargs(overrides.processor, *_OWN, *_IGNORED)
        mode = given.get("downsample_mode", self.downsample)
        if mode not in ("16x", "4x"):
            raise refused("downsample_mode", mode, '"16x" or "4x"')
        most = positive_count(given, "max_slice_nums", self.max_slices, most=_MOST_SLICES)
        return replace(self, max_slices=most, downsample=mode)

    def replacements(
        self, items: Sequence[ImageSize], context: ModelContext
    ) -> Iterator[Replacement]:
        for number, image in enumerate(items):
            text = context.encode(self._text(number, *self.grid(image)))
            yield repeated(text, self.image_token_id, self.counts(image))

    def grid(self, image: ImageSize) -> tuple[int, int]:
        """Rows and columns of slices; (0, 0) if the image is not sliced."""
        wanted = math.ceil(image.width * image.height / self.slice_size**2)
        slices = min(wanted, self.max_slices)
        if slices <= 1:
            return 0, 0
        log_ratio = math.log(image.width / image.height)
        best, best_error = (1, 1), math.inf
        for count in (slices - 1, slices, slices + 1):
            if count == 1 or count > self.max_slices:
                continue
            for rows in range(1, count + 1):
                columns, rest = divmod(count, rows)
                if rest:
                    continue
                error = abs(log_ratio - math.log(columns / rows))
                if error < best_error or (error == best_error and rows > best[0]):
                    best, best_error = (rows, columns), error
        return best

    def counts(self, image: ImageSize) -> list[int]:
        """Features of the whole image, and of each slice."""
        rows, columns = self.grid(image)
        whole = self._tokens(image.height, image.width, enlarge=not rows)
        if not rows:
            return [whole]
        height, width = _multiple(image.height, rows), _multiple(image.width, columns)
        part = self._tokens(height / rows, width / columns, enlarge=True)
        return [whole, *[part] * (rows * columns)]

    def _tokens(self, height: float, width: float, *, enlarge: bool) -> int:
        """Tokens after a resize to about a slice's area; smaller images grow only if told to."""
        if enlarge or height * width > self.slice_size**2:
            aspect = width / height
            height = int(self.slice_size / math.sqrt(aspect))
            width = int(height * aspect)
        side = self.patch_size * 4  # both merges of patches, whatever the mode
        area = _multiple(height, side) * _multiple(width, side)
        return area // (self.patch_size**2 * (16 if self.downsample == "16x" else 4))

    def _text(self, number: int, rows: int, columns: int) -> str:
        """The replacement with one image token for the whole image and each slice.

        The first image, cut into a row of two slices, is ``<id>0</id><image>IMAGE</image>`` and
        twice ``<slice>IMAGE</slice>``; a line break stands between two rows.
        """
        whole = f"{self.image_start}{self.image}{self.image_end}"
        part = f"{self.slice_start}{self.image}{self.slice_end}"
        slices = "\n".join([part * columns] * rows)
        return f"{self.number_start}{number}{self.number_end}{whole}{slices}"


def _multiple(length: float, divisor: int) -> int:
    """The multiple of a divisor that is nearest, half to even, and at least one of it."""
    return max(round(length / divisor) * divisor, divisor)
