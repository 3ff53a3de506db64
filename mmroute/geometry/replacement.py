"""Replacements of placeholders, and the values on which they may depend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from mmroute.errors import InexactError, Reason, quoted
from mmroute.token_ids import TokenIds

EmbedRuns: TypeAlias = tuple[tuple[bool, int], ...]
"""Run lengths of `is_embed`: (True, n) for n feature positions, (False, n) for n others."""

_MOST_TOKENS: Final = 1 << 23


class Replacement(NamedTuple):
    """The token IDs of one item."""

    token_ids: TokenIds  # all token IDs, shape (n,). Do not write to the array.
    embed_runs: EmbedRuns | None = None  # the positions that receive features; None if all do
    # The token IDs that it replaces; None for the target of its modality.
    target: tuple[int, ...] | None = None

    @property
    def num_embeds(self) -> int:
        """The number of positions that receive features."""
        if self.embed_runs is None:
            return len(self.token_ids)
        return sum(count for is_embed, count in self.embed_runs if is_embed)


class ModelContext(NamedTuple):
    """The values that grids and layouts may read beside a request's items."""

    max_model_len: int  # the number of tokens of the longest context
    # Encodes text by the model's tokenizer, without special tokens.
    encode: Callable[[str], TokenIds]
    processor_cache_off: bool = False  # whether the engine keeps no processed items


class Overrides(NamedTuple):
    """The overrides of a request for the processing of its items."""

    processor: Mapping[str, Any]  # its ``mm_processor_kwargs``
    media_io: Mapping[str, Any]  # its ``media_io_kwargs``: of one modality, or by modality


def check_count(count: int) -> None:
    """Refuse a count that fits no context, before it takes memory."""
    if count > _MOST_TOKENS:
        raise InexactError(
            Reason.ITEM_TOO_LARGE, f"an item would have {quoted(count)} tokens; no engine holds it"
        )
