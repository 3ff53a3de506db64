"""The rate that FFmpeg finds in the times of a video's first frames, where no header tells it.

Source: FFmpeg 9 ``libavformat/demux.c`` (`ff_rfps_add_frame`, `ff_rfps_calculate`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

ANALYZED_FRAMES: Final = 41
"""The frames that FFmpeg looks at, where the time unit is a millisecond or longer."""

_UNIT: Final = 12 * 1001  # of the usual rates below
_USUAL: Final = np.array(
    [
        *(n * 1001 for n in range(1, 30 * 12 + 1)),  # every twelfth up to 30
        *(n * _UNIT for n in (*range(31, 61), 80, 120, 240)),
        *(n * 12 * 1000 for n in (24, 30, 60, 12, 15, 48)),  # such as 24000/1001
    ]
)
_SLOWEST: Final = 1  # of the usual rates that are tried
_ALL_ALIKE: Final = 15  # durations from which their common divisor counts
_JITTER: Final = 3  # first durations that may be of any length
_LONGEST_DIVISOR: Final = 500  # the divisor must be above a 500th of a second
_LARGEST_ERROR: Final = 0.01
_NO_ERROR: Final = 1e-9
_DROPPED: Final = 0.04  # an error with which FFmpeg gives up on a rate
_MARGIN: Final = 0.8
_MOST_INCREASE: Final = 1.01
_CHECKED_EACH: Final = 10
_AT_ONCE: Final = 50  # frames, a multiple of it


def estimated_rate(times: Sequence[int], unit: Fraction) -> float:
    """Frames per second of a video without a rate."""
    durations = [after - before for before, after in pairwise(times)]
    return float(_common(durations, unit) or _usual(times[1:], durations, unit) or 1 / unit)


def _common(durations: list[int], unit: Fraction) -> Fraction | None:
    """The rate of which all durations are multiples, as if some frames were left out."""
    divisor = math.gcd(*durations[_JITTER:])
    if len(durations) <= _ALL_ALIKE or divisor <= max(1, 1 / unit // _LONGEST_DIVISOR):
        return None
    return 1 / (divisor * unit)


def _usual(times: Sequence[int], durations: list[int], unit: Fraction) -> Fraction | None:
    """The usual rate to whose ticks, or to the middles between them, the times are closest."""
    if len(durations) <= 1:
        return None
    usual = _USUAL  # those that are not given up
    errors = np.zeros((2, 2, len(usual)))  # tick or middle, sum or sum of squares, rate
    for first in range(0, len(times), _AT_ONCE):
        some = np.array(times[first : first + _AT_ONCE])
        ticks = (some * float(unit))[:, None] * usual / _UNIT
        error = np.stack([ticks - np.rint(ticks), ticks - np.rint(ticks + 0.5) + 0.5], axis=1)
        each = np.stack([error, error**2], axis=2)
        each[0] += errors
        sums = each.cumsum(axis=0)  # in the order of the frames, because sums are rounded
        kept = np.ones(len(usual), bool)
        for last in range(_CHECKED_EACH, len(some) + 1, _CHECKED_EACH):
            kept &= (_variance(sums[last - 1], first + last) <= _DROPPED).any(axis=0)
        errors, usual = sums[-1][..., kept], usual[kept]
    mean = float(unit) * sum(durations) / len(durations)
    tried = (usual >= _SLOWEST * _UNIT) & (mean >= _MARGIN * _UNIT / usual)
    variance = _variance(errors, len(durations))
    best, found = _LARGEST_ERROR, None
    for n in tried.nonzero()[0]:
        for error in variance[:, n]:
            if error < best and best > _NO_ERROR:
                best, found = error, Fraction(int(usual[n]), _UNIT)
    return found if found is not None and found < _MOST_INCREASE / unit else None


def _variance(errors: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    return errors[:, 1] / count - (errors[:, 0] / count) ** 2
