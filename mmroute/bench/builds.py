"""Compare two builds of mmroute, or two of its settings, in one run.

Each is a process of its own. They answer the same requests in turns, so that whatever else the
machine does meets both. The figures are ratios of pairs, with the interval in which their median
is, 19 times of 20; and the least time of each, which other work disturbs least.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmroute.bench.children import Build, Child, in_turns
from mmroute.bench.mixes import Mix

__all__ = ["Comparison", "Ratio", "compare", "ratio_of"]

_QUANTITIES: Final[tuple[str, ...]] = ("whole", "without encoding", "block hashes")
_Z: Final = 1.96  # 95 of 100 of a normal distribution


@dataclass(frozen=True, slots=True)
class Ratio:
    """What the second build takes of the time of the first.

    Attributes:
        median: of the ratios of all pairs.
        low: the median is not below, 19 times of 20.
        high: nor above.
        least: the least time of each, in microseconds.
        medians: their medians.
        pairs: how many there are.
    """

    median: float
    low: float
    high: float
    least: tuple[float, float]
    medians: tuple[float, float]
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two builds, and one mix.

    Attributes:
        mix: its name.
        says: what is in a request.
        ratios: of the whole request, without encoding, and of its block hashes; without what one
            of the builds cannot tell.
    """

    mix: str
    says: str
    ratios: Mapping[str, Ratio]


def ratio_of(pairs: Sequence[tuple[int, int]]) -> Ratio:
    """The median of ratios, with its interval by order statistics.

    Args:
        pairs: nanoseconds of the first and of the second build.
    """
    ratios = sorted(second / first for first, second in pairs)
    count = len(ratios)
    outside = max(0, math.floor((count - _Z * math.sqrt(count)) / 2))
    times = list(zip(*pairs, strict=True))
    least, medians = (
        tuple(round(of(each) / 1000, 2) for each in times) for of in (min, statistics.median)
    )
    return Ratio(
        round(statistics.median(ratios), 4),
        round(ratios[outside], 4),
        round(ratios[count - 1 - outside], 4),
        (least[0], least[1]),
        (medians[0], medians[1]),
        count,
    )


def compare(
    builds: tuple[Build, Build], mixes: Sequence[Mix], setup: Mapping[str, Any], *, repeat: int
) -> Iterator[Comparison]:
    """Compare two builds, mix by mix.

    Args:
        builds: the first and the second.
        mixes: the requests; of a mix without an answer there is no comparison.
        setup: as for `Child`.
        repeat: pairs of each mix.

    Raises:
        MmrouteError: a build ended early, or the two gave different answers.
    """
    with Child(builds[0], setup) as first, Child(builds[1], setup) as second:
        first.receive()
        second.receive()
        for mix in mixes:
            pairs: dict[str, list[tuple[int, int]]] = {}
            first.warm_up(mix)
            second.warm_up(mix)
            # Watches take time themselves: every other request has one.
            for _, *both in in_turns(first, second, mix, repeat, watched=(False, True)):
                times = [_times(answer) for answer in both]
                for name in times[0].keys() & times[1].keys():
                    pairs.setdefault(name, []).append((times[0][name], times[1][name]))
            if pairs:
                ratios = {name: ratio_of(pairs[name]) for name in _QUANTITIES if name in pairs}
                yield Comparison(mix.name, mix.says, ratios)


def _times(answer: Mapping[str, Any]) -> dict[str, int]:
    """Processor time in nanoseconds; of a request with a watch, which goes by the wall, that."""
    if "refusal" in answer:
        return {}
    hashes = {"block hashes": answer["hash_cpu"]} if "hash_cpu" in answer else {}
    stages = answer["stages"]
    if stages is None:
        return {"whole": answer["cpu"]} | hashes
    return {"without encoding": answer["wall"] - stages.get("encode", 0)} | hashes
