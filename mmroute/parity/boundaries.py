"""The image sizes at which a geometry's count changes, found by bisection over the geometry.

Nothing is known of the algorithm: along a line of growing sizes the answer is constant for a
while and then another, and what two engines disagree about is where exactly. So a pair of
neighbouring sizes with different answers says more than any round number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from mmroute.errors import InexactError
from mmroute.geometry import AnyGeometry, ModelContext
from mmroute.items import ImageSize

__all__ = ["SizeCase", "boundary_sizes"]

_Size: TypeAlias = tuple[int, int]
_Outcome: TypeAlias = bytes | None
_Line: TypeAlias = Callable[[int], _Size]

# Larger pictures take an oracle seconds, and models none.
_MOST_PIXELS: Final = 1 << 25
_LONGEST: Final = 20_000
_EDGES_PER_LINE: Final = 2
_REFUSALS_PER_LINE: Final = 2

_GROWING: Final[tuple[_Line, ...]] = (
    lambda t: (t, t),
    lambda t: (max(4 * t // 3, 1), t),
    lambda t: (t, 3 * t),
)
# One side grows, from a first size on. Of the last ones any model scales the other side down, by
# a ratio that leaves neither halves nor whole pixels.
_ROUNDING: Final[tuple[tuple[_Line, int], ...]] = (
    (lambda t: (t, 480), 640),
    (lambda t: (720, t), 1000),
    (lambda t: (3001, t), 1000),
    (lambda t: (t, 4621), 1500),
)
_THIN: Final[tuple[_Line, ...]] = (
    lambda t: (t, 1),
    lambda t: (1, t),
    lambda t: (t, 7),
    lambda t: (7, t),
)
# What every model is asked, also one that counts all sizes alike.
_ALWAYS: Final[tuple[tuple[str, _Size], ...]] = (
    ("tiny", (1, 1)),
    ("tiny", (1, 2)),
    ("tiny", (2, 1)),
    ("rounding", (1280, 720)),
    ("limits", (4096, 4096)),
    ("limits", (5000, 3000)),
    ("aspect", (900, 300)),
    ("aspect", (300, 900)),
    ("aspect", (2000, 10)),
    ("aspect", (10, 2000)),
    ("aspect", (2001, 10)),
    ("aspect", (8000, 50)),
)


@dataclass(frozen=True, slots=True)
class SizeCase:
    """A size at a boundary.

    Attributes:
        kind: why: ``rounding``, ``limits``, ``aspect`` or ``tiny``.
        size: of the image.
    """

    kind: str
    size: ImageSize


def boundary_sizes(geometry: AnyGeometry, context: ModelContext) -> list[SizeCase]:
    """Sizes on both sides of a geometry's boundaries; each once, the first kind that finds it.

    ``limits``: growing in proportion, where the first and the last change is. ``rounding``:
    changes in between, one side growing. ``aspect``: thin images, where they begin to be
    refused. ``tiny``: hardly a pixel.
    """
    probe = _Probe(geometry, context)
    found: dict[_Size, str] = {}
    for kind, size in (*_ALWAYS, *_limits(probe), *_edges(probe), *_aspects(probe)):
        found.setdefault(size, kind)
    return [SizeCase(kind, ImageSize(*size)) for size, kind in found.items()]


class _Probe:
    """A geometry with its counts cached."""

    def __init__(self, geometry: AnyGeometry, context: ModelContext) -> None:
        @cache
        def outcome(size: _Size) -> _Outcome:
            try:
                (replacement,) = geometry.replacements([ImageSize(*size)], context)
            except InexactError:
                return None
            return replacement.token_ids.tobytes()

        self.outcome = outcome

    def next_change(self, line: _Line, start: int, end: int) -> int | None:
        """The t from `start` on at which the answer differs from that of t + 1.

        Found in growing steps, so it is the very next one where changes are far apart.
        """
        first = self.outcome(line(start))
        step = 1 if end > start else -1
        same, probed = start, start
        while probed != end:
            probed = min(probed + step, end) if step > 0 else max(probed + step, end)
            if self.outcome(line(probed)) != first:
                return self._between(line, same, probed)
            same, step = probed, 2 * step
        return None

    def _between(self, line: _Line, same: int, other: int) -> int:
        first = self.outcome(line(same))
        while abs(other - same) > 1:
            middle = (same + other) // 2
            if self.outcome(line(middle)) == first:
                same = middle
            else:
                other = middle
        return min(same, other)


def _pair(kind: str, line: _Line, at: int) -> Iterator[tuple[str, _Size]]:
    yield kind, line(at)
    yield kind, line(at + 1)


def _end(line: _Line) -> int:
    """The last t of a line whose picture is not too large to be asked for."""
    low, high = 1, _LONGEST
    while low < high:
        middle = (low + high + 1) // 2
        width, height = line(middle)
        if max(width, height) <= _LONGEST and width * height <= _MOST_PIXELS:
            low = middle
        else:
            high = middle - 1
    return low


def _limits(probe: _Probe) -> Iterator[tuple[str, _Size]]:
    for line in _GROWING:
        end = _end(line)
        for start, stop in ((1, end), (end, 1)):
            at = probe.next_change(line, start, stop)
            if at is not None:
                yield from _pair("limits", line, at)


def _edges(probe: _Probe) -> Iterator[tuple[str, _Size]]:
    for line, first in _ROUNDING:
        at: int | None = first
        for _ in range(_EDGES_PER_LINE):
            at = probe.next_change(line, at, _end(line)) if at is not None else None
            if at is None:
                break
            yield from _pair("rounding", line, at)
            at += 1


def _aspects(probe: _Probe) -> Iterator[tuple[str, _Size]]:
    for line in _THIN:
        end = _end(line)
        # Acceptance alone first: between two refusals of one line lie counts without number.
        stops = sorted({min(1 << power, end) for power in range(end.bit_length() + 1)})
        refused = [probe.outcome(line(t)) is None for t in stops]
        found = 0
        for i in range(1, len(stops)):
            if refused[i] != refused[i - 1] and found < _REFUSALS_PER_LINE:
                yield from _pair("aspect", line, _acceptance(probe, line, stops[i - 1], stops[i]))
                found += 1
        if not found:
            at = probe.next_change(line, end, 1)
            if at is not None:
                yield from _pair("aspect", line, at)


def _acceptance(probe: _Probe, line: _Line, low: int, high: int) -> int:
    refused = probe.outcome(line(low)) is None
    while high - low > 1:
        middle = (low + high) // 2
        if (probe.outcome(line(middle)) is None) == refused:
            low = middle
        else:
            high = middle
    return low
