"""Where two prompts, or two lists of hashes, begin to differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt

# The errors of tokenizers for an ID that is not in their vocabulary.
_NOT_DECODED: Final = (ValueError, KeyError, OverflowError, IndexError)


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


def text_of(tokenizer: Tokenizer, ids: TokenIds) -> str | None:
    """The text of token IDs; None if the tokenizer has no text for one of them."""
    try:
        return tokenizer.decode(ids.tolist())
    except _NOT_DECODED:
        return None
