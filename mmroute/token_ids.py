"""Token IDs: one contiguous array of uint32."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

TokenIds: TypeAlias = "npt.NDArray[np.uint32]"
"""Token IDs: one contiguous uint32 array of shape (n,)."""

MAX_TOKEN_ID: Final = 2**32 - 1


def as_token_ids(ids: Iterable[int]) -> TokenIds:
    """Integers as token IDs, shape (n,). `np.array` takes four times as long for a list."""
    return np.frombuffer(array("I", ids), np.uint32)
