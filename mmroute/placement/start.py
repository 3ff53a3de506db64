"""PaliGemma, BLIP-2, OpenVLA: an item is put in at the start, and takes nobody's place.

Source: vLLM ``multimodal/processing/processor.py`` (`PromptIndexTargets`),
``model_executor/models/paligemma.py``, ``blip2.py``, ``openvla.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mmroute.placement.expansion import Expansion, Insertion, splice, too_few
from mmroute.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class AtStart:
    """Placement in front of the prompt, or behind the target with which it must begin.

    Attributes:
        ending: the token that is put at the end of a prompt with an item, unless it is there.
    """

    keeps_prefix: ClassVar = False
    ending: int | None = None

    def expand(self, ids: TokenIds, insertions: Sequence[Insertion]) -> Expansion:
        start = len(insertions[0].target)
        if tuple(ids[:start].tolist()) != insertions[0].target:
            raise too_few(0, insertions)
        matches = [(index, start, start) for index in range(len(insertions))]
        expansion = splice(ids, matches, insertions)
        if self.ending is None or expansion.token_ids[-1] == self.ending:
            return expansion
        ended = np.append(expansion.token_ids, np.uint32(self.ending))
        return expansion._replace(token_ids=ended)
