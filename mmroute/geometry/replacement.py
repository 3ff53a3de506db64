"""What takes one placeholder's place in the expanded prompt, and what it may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from mmroute.errors import InexactError, Reason, quoted

if TYPE_CHECKING:
    import numpy.typing as npt


TokenIds: TypeAlias = "npt.NDArray[np.uint32]"
"""Token IDs: one contiguous uint32 array of shape (n,)."""

EmbedRuns: TypeAlias = tuple[tuple[bool, int], ...]
"""Run lengths of `is_embed`: (True, n) for n feature positions, (False, n) for n others."""

_MOST_TOKENS: Final = 1 << 23


class Replacement(NamedTuple):
    """The token IDs of one item.

    Attributes:
        token_ids: all token IDs, shape (n,). Do not write to the array.
        embed_runs: the positions that receive features; None if all do.
        target: the token IDs whose place it takes; None for the target of its modality.
    """

    token_ids: TokenIds
    embed_runs: EmbedRuns | None = None
    target: tuple[int, ...] | None = None

    @property
    def num_embeds(self) -> int:
        """How many positions receive features."""
        if self.embed_runs is None:
            return len(self.token_ids)
        return sum(count for is_embed, count in self.embed_runs if is_embed)


class ModelContext(NamedTuple):
    """What grids and layouts may know beside a request's items.

    Attributes:
        max_model_len: tokens of the longest context.
        encode: the model's tokenizer, without special tokens, for replacements that are text.
        processor_cache_off: whether the engine keeps no processed items.
    """

    max_model_len: int
    encode: Callable[[str], TokenIds]
    processor_cache_off: bool = False


class Overrides(NamedTuple):
    """What a request changes of how its items are processed.

    Attributes:
        processor: its ``mm_processor_kwargs``.
        media_io: its ``media_io_kwargs`` of this modality.
    """

    processor: Mapping[str, Any]
    media_io: Mapping[str, Any]


def check_count(count: int) -> None:
    """Refuse what fits no context before it takes memory: a request may ask for any number.

    Raises:
        InexactError: `item_too_large`.
    """
    if count > _MOST_TOKENS:
        raise InexactError(
            Reason.ITEM_TOO_LARGE, f"an item would have {quoted(count)} tokens; no engine holds it"
        )
