"""The image sizes at which a geometry's count changes, found by bisection over the geometry.

Nothing needs to be known about the algorithm. Along a line of growing sizes the answer is constant
for a while, and then changes. Two engines mostly disagree about the size at which it changes. So a
pair of neighbouring sizes with different answers is a better test than any round number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, pairwise
from typing import Final, TypeAlias

from mmroute.errors import InexactError
from mmroute.geometry import Geometry, ModelContext
from mmroute.requests.items import ImageSize

_Size: TypeAlias = tuple[int, int]
_Probe: TypeAlias = Callable[[_Size], bytes | None]
_Line: TypeAlias = Callable[[int], _Size]
_Edge: TypeAlias = "tuple[_Line, int | None]"

# An oracle takes seconds for larger pictures, and models scale them down anyway.
_MAX_PIXELS: Final = 1 << 25
_LONGEST: Final = 20_000
_EDGES_PER_LINE: Final = 2
_REFUSALS_PER_LINE: Final = 2

_GROWING: Final[tuple[_Line, ...]] = (
    lambda t: (t, t),
    lambda t: (max(4 * t // 3, 1), t),
    lambda t: (t, 3 * t),
)
# Lines on which one side grows from a first size. On the last lines any model scales the other
# side down, by a ratio that gives neither halves nor whole pixels.
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
# Sizes that every model is tested with, also one that counts all sizes alike.
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


def boundary_sizes(geometry: Geometry, context: ModelContext) -> list[tuple[str, ImageSize]]:
    """Sizes on both sides of a geometry's boundaries; each once, with the first kind that finds it.

    There are four kinds. ``limits`` are the first and the last change while both sides grow in
    proportion. ``rounding`` are changes in between, while one side grows. ``aspect`` are thin
    images, at which refusals begin. ``tiny`` are sides of a few pixels.
    """

    @cache
    def probe(size: _Size) -> bytes | None:
        try:
            (replacement,) = geometry.replacements([ImageSize(*size)], context)
        except InexactError:
            return None
        return replacement.token_ids.tobytes()

    found: dict[_Size, str] = {}
    for kind, size in _ALWAYS:
        found.setdefault(size, kind)
    for kind, edges in (("limits", _limits), ("rounding", _edges), ("aspect", _aspects)):
        for line, edge in edges(probe):
            if edge is not None:
                found.setdefault(line(edge), kind)
                found.setdefault(line(edge + 1), kind)
    return [(kind, ImageSize(*size)) for size, kind in found.items()]


def _next_change(probe: _Probe, line: _Line, start: int, end: int) -> int | None:
    """The t from `start` on at which the answer differs from that for t + 1.

    The steps of the search grow, so where changes are close together it may skip some.
    """
    first = probe(line(start))
    step = 1 if end > start else -1
    same = probed = start
    while probed != end:
        probed = min(probed + step, end) if step > 0 else max(probed + step, end)
        if probe(line(probed)) != first:
            return _boundary(lambda t: probe(line(t)) == first, same, probed)
        same, step = probed, 2 * step
    return None


def _boundary(holds: Callable[[int], bool], inside: int, outside: int) -> int:
    """The smaller of two neighbours between which `holds` changes, found by bisection."""
    low, high = sorted((inside, outside))
    at_low = holds(low)
    return low - 1 + bisect_left(range(low, high), True, key=lambda t: holds(t) != at_low)


def _end(line: _Line) -> int:
    """The last t of a line whose picture is not too large."""

    def fits(t: int) -> bool:
        width, height = line(t)
        return max(width, height) <= _LONGEST and width * height <= _MAX_PIXELS

    return _boundary(fits, 1, _LONGEST + 1)


def _limits(probe: _Probe) -> Iterator[_Edge]:
    for line in _GROWING:
        end = _end(line)
        for start, stop in ((1, end), (end, 1)):
            yield line, _next_change(probe, line, start, stop)


def _edges(probe: _Probe) -> Iterator[_Edge]:
    for line, first in _ROUNDING:
        edge: int | None = first - 1
        for _ in range(_EDGES_PER_LINE):
            if edge is not None:
                edge = _next_change(probe, line, edge + 1, _end(line))
                yield line, edge


def _aspects(probe: _Probe) -> Iterator[_Edge]:
    for line in _THIN:
        end = _end(line)
        edges = list(islice(_refusal_edges(probe, line, end), _REFUSALS_PER_LINE))
        yield from ((line, edge) for edge in edges)
        if not edges:
            yield line, _next_change(probe, line, end, 1)


def _refusal_edges(probe: _Probe, line: _Line, end: int) -> Iterator[int]:
    """The changes between refused and counted sizes; between two of them counts may change, too."""

    def refused(t: int) -> bool:
        return probe(line(t)) is None

    stops = [*(1 << power for power in range((end - 1).bit_length())), end]
    for low, high in pairwise(stops):
        if refused(low) != refused(high):
            yield _boundary(refused, low, high)
