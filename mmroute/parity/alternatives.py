"""Variants of the model's geometry, with one field or the image sizes changed.

Nothing is known of the algorithm beyond the fields of its dataclass: a choice has its other
choices, a switch its other position, and a number is searched for the values that give the count
that is wanted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from mmroute.errors import InexactError
from mmroute.geometry import AnyGeometry, ModelContext
from mmroute.requests.items import ImageSize

__all__ = ["Alternative", "alternatives", "total"]

# Sides, patches, tiles and areas that models are known to have; 28 * 28 is Qwen's area of a token.
_KNOWN: Final = (
    1, 2, 3, 4, 6, 8, 9, 12, 14, 16, 24, 28, 32, 224, 336, 384, 448, 560, 672, 896, 980, 1024,
    1540, 4 * 28 * 28, 256 * 28 * 28, 1280 * 28 * 28, 16384 * 28 * 28, 1 << 16, 1 << 20, 1 << 24,
)  # fmt: skip
# A number is searched among so many times its half and its double, in quarter steps of a power.
_OCTAVES: Final = 8
_STEPS: Final = 4
_LARGEST: Final = 1 << 40

_Fits: TypeAlias = Callable[[AnyGeometry], bool]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another geometry, or other sizes.

    Attributes:
        name: what is other about it, such as ``rounding='down'``.
        geometry: itself.
        sizes: what it counts; None for those of the request.
        note: which other values would do as well; empty if none was looked for.
    """

    name: str
    geometry: AnyGeometry
    sizes: tuple[ImageSize, ...] | None = None
    note: str = ""


def total(geometry: AnyGeometry, images: Sequence[ImageSize], context: ModelContext) -> int | None:
    """How many tokens all images have together; None if one is refused."""
    try:
        replacements = list(geometry.replacements(images, context))
    except (InexactError, ArithmeticError, ValueError, IndexError):  # a senseless variant
        return None
    return sum(len(replacement.token_ids) for replacement in replacements)


def alternatives(
    geometry: AnyGeometry, images: tuple[ImageSize, ...], context: ModelContext, wanted: int
) -> Iterator[Alternative]:
    """Other geometries that give all images together so many tokens; choices before numbers.

    Last come the same fields with a size one pixel off: a boundary that is rounded another way.
    """

    def fits(other: AnyGeometry, sizes: Sequence[ImageSize] = images) -> bool:
        return total(other, sizes, context) == wanted

    kind: Any = type(geometry)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [f.name for f in fields(kind) if not f.name.endswith("_token_id")]
        for name in names:
            for value in _choices(hints[name], getattr(geometry, name)):
                other = _with(geometry, name, value)
                if other is not None and fits(other):
                    yield Alternative(f"{name}={value!r}", other)
        for name in names:
            found = _number(geometry, name, fits)
            if found is not None:
                yield found
    yield from _nudged(geometry, images, fits)


def _with(geometry: Any, name: str, value: object) -> AnyGeometry | None:
    try:
        changed: AnyGeometry = replace(geometry, **{name: value})
    except (ValueError, ArithmeticError):
        return None
    return changed


def _choices(hint: Any, value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif get_origin(hint) is Literal:
        yield from (choice for choice in get_args(hint) if choice != value)
    elif isinstance(value, tuple) and value and all(isinstance(v, tuple) for v in value):
        yield tuple(v[::-1] for v in value)
    elif value is None and int in get_args(hint):
        yield from _KNOWN
    elif isinstance(value, int) and type(None) in get_args(hint):
        yield None


def _number(geometry: AnyGeometry, name: str, fits: _Fits) -> Alternative | None:
    """A value of a number that fits: one that models have, else the first of those sampled."""
    value = getattr(geometry, name)
    if type(value) is not int:
        return None

    def does(number: int) -> bool:
        other = _with(geometry, name, number)
        return number != value and other is not None and fits(other)

    steps = range(-_OCTAVES * _STEPS, _OCTAVES * _STEPS + 1)
    samples = (max(round(value * 2 ** (step / _STEPS)), 1) for step in steps)
    near = (n for n in (value - 1, value + 1, value // 2, value * 2) if n > 0)
    at = next((n for n in (*near, *_KNOWN, *samples) if does(n)), None)
    other = None if at is None else _with(geometry, name, at)
    if at is None or other is None:
        return None
    low, high = _reach(does, at, -1), _reach(does, at, 1)
    upper = f"to {high}" if 2 * high < _LARGEST else "up"
    note = f"any from {low} {upper} would do" if low != high else ""
    return Alternative(f"{name}={at}", other, note=note)


def _reach(does: Callable[[int], bool], at: int, sign: int) -> int:
    """The last value that does, going one way from one that does."""
    good, step = at, 1
    while 0 < (probed := good + sign * step) < _LARGEST and does(probed):
        good, step = probed, 2 * step
    while step > 1:
        step //= 2
        if 0 < good + sign * step < _LARGEST and does(good + sign * step):
            good += sign * step
    return good


def _nudged(
    geometry: AnyGeometry,
    images: tuple[ImageSize, ...],
    fits: Callable[[AnyGeometry, Sequence[ImageSize]], bool],
) -> Iterator[Alternative]:
    for width, height in itertools.islice(itertools.product((0, 1, -1), repeat=2), 1, None):
        sizes = tuple(ImageSize(max(i.width + width, 1), max(i.height + height, 1)) for i in images)
        if fits(geometry, sizes):
            name = f"{width:+d} pixels of width, {height:+d} of height"
            yield Alternative(name, geometry, sizes, "a side is rounded another way")
