"""Finds arguments of an image processor that give a request's images the oracle's counts.

A boolean is inverted. For a number a value is searched that gives the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmroute.errors import InexactError
from mmroute.geometry import Geometry, ModelContext, Overrides
from mmroute.requests.items import ImageSize

# Sides, patches, tiles and areas of known models; 28 * 28 is the area of a token in Qwen's models.
_KNOWN: Final = (
    1, 2, 3, 4, 6, 8, 9, 12, 14, 16, 24, 28, 32, 224, 336, 384, 448, 560, 672, 896, 980, 1024,
    1540, 4 * 28 * 28, 256 * 28 * 28, 1280 * 28 * 28, 16384 * 28 * 28, 1 << 16, 1 << 20, 1 << 24,
)  # fmt: skip
# A number is searched by so many octaves below and above its value, in quarter steps.
_OCTAVES: Final = 8
_STEPS: Final = 4
_LIMITS: Final = ("max_", "min_")


def processor_arguments(
    geometry: Geometry, images: Sequence[ImageSize], context: ModelContext, wanted: int
) -> Iterator[Mapping[str, Any]]:
    """Arguments with which all images together have `wanted` tokens.

    They are among the arguments that the family's spec lists for the processor. Limits come first,
    because operators set them most often.
    """
    changing = [(name, one.sets[0]) for name, one in geometry.accepts.named.items() if one.sets]
    for name, field in sorted(changing, key=lambda pair: not pair[0].startswith(_LIMITS)):
        for value in _values(getattr(geometry.grid, field)):
            other = _with(geometry, name, value)
            if other is not None and total(other, images, context) == wanted:
                yield {name: value}
                break


def total(geometry: Geometry, images: Sequence[ImageSize], context: ModelContext) -> int | None:
    """The number of tokens of all images together; None if one is refused."""
    try:
        replacements = list(geometry.replacements(images, context))
    except (InexactError, ArithmeticError, ValueError, IndexError):  # the value makes no sense
        return None
    return sum(len(replacement.token_ids) for replacement in replacements)


def _with(geometry: Geometry, name: str, value: object) -> Geometry | None:
    try:
        return geometry.with_overrides(Overrides({name: value}, {}))
    except (InexactError, ArithmeticError):
        return None


def _values(value: object) -> Iterator[object]:
    """Other values of a number: the nearest ones, then those of known models, then samples."""
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from _KNOWN
    elif isinstance(value, int):
        steps = range(-_OCTAVES * _STEPS, _OCTAVES * _STEPS + 1)
        samples = (max(round(value * 2 ** (step / _STEPS)), 1) for step in steps)
        near = (value - 1, value + 1, value // 2, value * 2)
        yield from (n for n in (*near, *_KNOWN, *samples) if n > 0 and n != value)
