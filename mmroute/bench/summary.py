"""Percentiles of measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Summary", "summarize"]

_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Summary:
    """Percentiles of one kind of measurement.

    Attributes:
        p50: the median, in microseconds.
        p95: 95 of 100 were not longer, in microseconds.
        p99: 99 of 100 likewise.
        samples: how many were measured.
    """

    p50: float
    p95: float
    p99: float
    samples: int


def summarize(nanoseconds: Sequence[int]) -> Summary:
    """The percentiles of at least one time.

    >>> summarize([1000, 3000, 2000])
    Summary(p50=2.0, p95=2.9, p99=2.98, samples=3)
    """
    found = np.percentile(np.asarray(nanoseconds) / 1000, (50, 95, 99))
    p50, p95, p99 = (round(float(value), _DIGITS) for value in found)
    return Summary(p50, p95, p99, len(nanoseconds))
