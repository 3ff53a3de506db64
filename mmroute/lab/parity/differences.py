"""Where two prompts, or two lists of hashes, begin to differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def first_difference(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> int:
    """The index of the first ID that differs; the shorter length if one is a prefix of the other.

    >>> first_difference(np.array([1, 2], np.uint32), np.array([1, 3], np.uint32))
    1
    """
    length = min(len(ours), len(theirs))
    differing = np.flatnonzero(ours[:length] != theirs[:length])
    return int(differing[0]) if len(differing) else length


def num_same(first: Sequence[object], second: Sequence[object]) -> int:
    """The number of first elements that are the same."""
    for count, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return count
    return min(len(first), len(second))
