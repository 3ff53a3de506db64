"""DeepSeek-V4: what stands in front of an image depends on its position in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mmroute.geometry import Replacement
from mmroute.placement.expansion import Expansion, Insertion, match_targets, splice, too_few
from mmroute.token_ids import TokenIds

_ALIGNMENT: Final = 4


@dataclass(frozen=True, slots=True)
class AlignedTargets:
    """Placement by targets, with pads so that each image starts at the end of a group of four.

    Attributes:
        pad: the token of a pad.

    Source: vLLM ``models/deepseek_v4/common/mm_preprocess.py``
    (``_apply_token_matches_with_placeholders``).
    """

    keeps_prefix: ClassVar = True
    pad: int

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        matches = match_targets(ids, insertions)
        if len(matches) < len(insertions):
            raise too_few(len(matches), insertions)
        padded = list(insertions)
        shift = 0
        for index, start, stop in matches:
            replacement = self._padded(insertions[index].replacement, start + shift)
            padded[index] = insertions[index]._replace(replacement=replacement)
            shift += len(replacement.token_ids) - (stop - start)
        return splice(ids, matches, padded)

    def _padded(self, replacement: Replacement, offset: int) -> Replacement:
        pads = _ALIGNMENT - 1 - offset % _ALIGNMENT
        tokens = np.concatenate((np.full(pads, self.pad, np.uint32), replacement.token_ids))
        (is_embed, count), *runs = replacement.embed_runs or ((True, len(replacement.token_ids)),)
        if is_embed:
            return Replacement(tokens, ((False, pads), (True, count), *runs))
        return Replacement(tokens, ((False, pads + count), *runs))
