"""Arguments of an image processor that give a request's images the counts that an oracle has.

Nothing is known of the algorithm beyond the fields of its dataclass, whose names many processors
share with their arguments: a switch has its other position, and a number is searched for a value
that gives the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, get_args, get_type_hints

from mmroute.errors import InexactError
from mmroute.geometry import AnyGeometry, ModelContext
from mmroute.requests.items import ImageSize

# Sides, patches, tiles and areas that models are known to have; 28 * 28 is Qwen's area of a token.
_KNOWN: Final = (
    1, 2, 3, 4, 6, 8, 9, 12, 14, 16, 24, 28, 32, 224, 336, 384, 448, 560, 672, 896, 980, 1024,
    1540, 4 * 28 * 28, 256 * 28 * 28, 1280 * 28 * 28, 16384 * 28 * 28, 1 << 16, 1 << 20, 1 << 24,
)  # fmt: skip
# A number is searched among so many times its half and its double, in quarter steps of a power.
_OCTAVES: Final = 8
_STEPS: Final = 4
_LIMITS: Final = ("max_", "min_")


def processor_arguments(
    geometry: AnyGeometry, images: Sequence[ImageSize], context: ModelContext, wanted: int
) -> Iterator[Mapping[str, Any]]:
    """Arguments by which all images together have `wanted` tokens; limits first, as operators set.

    A processor may not know an argument that is named here: whoever asks tries each.
    """
    kind: Any = type(geometry)
    if not is_dataclass(kind):
        return

    def fits(other: AnyGeometry) -> bool:
        return total(other, images, context) == wanted

    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind) if not f.name.endswith("_token_id")]
    for name in sorted(names, key=lambda name: not name.startswith(_LIMITS)):
        for value in _values(hints[name], getattr(geometry, name)):
            other = _with(geometry, name, value)
            if other is not None and fits(other):
                yield {name: value}
                break


def total(geometry: AnyGeometry, images: Sequence[ImageSize], context: ModelContext) -> int | None:
    """How many tokens all images have together; None if one is refused."""
    try:
        replacements = list(geometry.replacements(images, context))
    except (InexactError, ArithmeticError, ValueError, IndexError):  # a senseless variant
        return None
    return sum(len(replacement.token_ids) for replacement in replacements)


def _with(geometry: Any, name: str, value: object) -> AnyGeometry | None:
    try:
        changed: AnyGeometry = replace(geometry, **{name: value})
    except (ValueError, ArithmeticError):
        return None
    return changed


def _values(hint: Any, value: object) -> Iterator[object]:
    """Other values of a field: the nearest first, then those that models have, then samples."""
    if isinstance(value, bool):
        yield not value
    elif value is None and int in get_args(hint):
        yield from _KNOWN
    elif isinstance(value, int):
        if type(None) in get_args(hint):
            yield None
        steps = range(-_OCTAVES * _STEPS, _OCTAVES * _STEPS + 1)
        samples = (max(round(value * 2 ** (step / _STEPS)), 1) for step in steps)
        near = (value - 1, value + 1, value // 2, value * 2)
        yield from (n for n in (*near, *_KNOWN, *samples) if n > 0 and n != value)
