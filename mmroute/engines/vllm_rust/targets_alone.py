"""The placement of vLLM's Rust frontend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmroute.placement.expansion import Expansion, Insertion, match_targets, splice, too_few
from mmroute.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class TargetsAlone:
    """`Targets` for a frontend that does not look again where it finds too few.

    Source: vLLM ``rust/src/chat/src/multimodal/expand.rs`` (`expand_prompt_token_ids`).
    """

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) < len(insertions):
            raise too_few(len(matches), insertions)
        return splice(ids, matches, insertions)
