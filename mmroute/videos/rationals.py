"""Fractions as FFmpeg reduces them, because frame rates depend on its approximation.

Source: FFmpeg 7 ``libavutil/rational.c`` (``av_reduce``) and ``libavutil/mathematics.c``.
"""

from __future__ import annotations

from math import gcd
from typing import Final

INT_MAX: Final = 2**31 - 1
"""The largest numerator or denominator of FFmpeg's fractions."""


def reduced(numerator: int, denominator: int, limit: int) -> tuple[int, int]:
    """A fraction in lowest terms, or the nearest fraction within the limit.

    >>> reduced(10**9, 33366666, 30000)
    (30000, 1001)
    """
    common = gcd(numerator, denominator)
    n, d = numerator // common, denominator // common
    if n <= limit and d <= limit:
        return n, d
    before, last = (0, 1), (1, 0)
    while d:
        x, rest = divmod(n, d)
        following = x * last[0] + before[0], x * last[1] + before[1]
        if max(following) > limit:
            if last[0]:
                x = (limit - before[0]) // last[0]
            if last[1]:
                x = min(x, (limit - before[1]) // last[1])
            if d * (2 * x * last[1] + before[1]) > n * last[1]:
                last = x * last[0] + before[0], x * last[1] + before[1]
            break
        before, last = last, following
        n, d = d, rest
    return last


def rescaled(value: int, numerator: int, denominator: int) -> int:
    """A value times a fraction, rounded to the nearest integer; halves are rounded up.

    >>> rescaled(1001, 90000, 60000)
    1502
    """
    return (2 * value * numerator + denominator) // (2 * denominator)
