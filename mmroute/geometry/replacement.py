"""What takes one placeholder's place in the expanded prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from mmroute.errors import InexactError, Reason, shown
from mmroute.request import ImageSize, RequestOptions

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["EmbedRuns", "Geometry", "Replacement", "TokenIds", "check_count", "fill", "rows"]

TokenIds: TypeAlias = "npt.NDArray[np.uint32]"
"""Token IDs: one contiguous uint32 array of shape (n,)."""

_MOST_TOKENS: Final = 1 << 23
_RUN: Final = 1 << 14

EmbedRuns: TypeAlias = tuple[tuple[bool, int], ...]
"""Run lengths of `is_embed`: (True, n) for n feature positions, (False, n) for n others."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The token IDs of one image.

    Attributes:
        token_ids: all of them, shape (n,); not to be written to.
        embed_runs: which of them receive image features; None if all do.
    """

    token_ids: TokenIds
    embed_runs: EmbedRuns | None = None

    @property
    def num_embeds(self) -> int:
        """How many positions receive image features."""
        if self.embed_runs is None:
            return len(self.token_ids)
        return sum(count for is_embed, count in self.embed_runs if is_embed)


class Geometry(Protocol):
    """Image sizes to replacements: pure functions of integers, no I/O.

    It gets all images of a request at once, because some models share one budget among them.
    """

    @property
    def max_embeds(self) -> int:
        """The most feature positions one image can have with the model's own configuration."""

    def with_overrides(self, options: RequestOptions) -> Geometry:
        """The geometry under the request's ``mm_processor_kwargs``.

        Raises:
            InexactError: `unsupported_processor_kwargs`.
        """

    def replacements(self, images: Sequence[ImageSize]) -> Iterator[Replacement]:
        """One replacement for each image, made when it is taken.

        Raises:
            InexactError: `image_refused`.
        """


def check_count(count: int) -> None:
    """Refuse what fits no context before it takes memory: a request may ask for any number.

    Raises:
        InexactError: `item_too_large`.
    """
    if count > _MOST_TOKENS:
        raise InexactError(
            Reason.ITEM_TOO_LARGE, f"an image would have {shown(count)} tokens; no engine holds it"
        )


def fill(token_id: int, count: int) -> Replacement:
    """``count`` feature positions in one run.

    Raises:
        InexactError: `item_too_large`.
    """
    check_count(count)
    if count <= _RUN:
        return Replacement(_run(token_id)[:count])
    return Replacement(np.full(count, token_id, dtype=np.uint32))


@lru_cache(maxsize=64)
def _run(token_id: int) -> TokenIds:
    """What most images are a piece of: no copy for each."""
    run = np.full(_RUN, token_id, dtype=np.uint32)
    run.setflags(write=False)
    return run


def rows(*, image_id: int, break_id: int, end_id: int, columns: int, count: int) -> Replacement:
    """``count`` rows of ``columns`` feature positions, each closed by a break, the last by an end.

    >>> rows(image_id=10, break_id=12, end_id=13, columns=2, count=2).token_ids.tolist()
    [10, 10, 12, 10, 10, 13]

    Raises:
        InexactError: `item_too_large`.
    """
    check_count(columns * count)
    row = np.full(columns + 1, image_id, dtype=np.uint32)
    row[-1] = break_id
    token_ids = np.tile(row, count)
    token_ids[-1] = end_id
    return Replacement(token_ids, ((True, columns), (False, 1)) * count)
