"""All placement rules by name: those of this package, and those of other installed packages.

They are needed only to load a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Protocol

from mmroute.placement.aligned_targets import AlignedTargets
from mmroute.placement.blank_lines import MergedBlankLines
from mmroute.placement.exact_targets import ExactRule
from mmroute.placement.expansion import Placement
from mmroute.placement.numbered_tags import NumberedTags
from mmroute.placement.start import AtStart
from mmroute.placement.targets import (
    AudioBesideVideo,
    RenderedByTokenizer,
    Targets,
    TargetsAfterFirst,
    TargetsAlone,
    TargetsInText,
)
from mmroute.plugins import installed, load
from mmroute.tokenizers import Tokenizer

ENTRY_POINTS: Final = "mmroute.placements"
"""The entry point group for other packages' rules: name in a spec -> ``module:Class``."""


class PlacementRule(Protocol):
    """Makes the placement of one model."""

    def build(self, tokenizer: Tokenizer, tokens: Mapping[str, int], /) -> Placement:
        """The rule for one model.

        Args:
            tokenizer: the model's tokenizer.
            tokens: the IDs of the tokens that the spec names, by name.

        Raises:
            ModelError: the model lacks what the rule needs.
        """


_OWN: Final[Mapping[str, PlacementRule]] = {
    "targets": Targets,
    "aligned_targets": AlignedTargets,
    "targets_after_first": TargetsAfterFirst,
    "targets_alone": TargetsAlone,
    "targets_in_text": TargetsInText,
    "audio_beside_video": AudioBesideVideo,
    "merged_blank_lines": MergedBlankLines,
    "numbered_tags": NumberedTags,
    "rendered": RenderedByTokenizer,
    "start": AtStart,
    "exact_pads": ExactRule(words=("<image>", "<|placeholder|>")),
    "exact_rows": ExactRule(words=("<placeholder>",)),
    "exact_in_text": ExactRule(in_text=True),
}


@cache
def placement_rules() -> Mapping[str, PlacementRule]:
    """The rules, by the names that family specs use.

    Raises:
        SpecError: another package's rule cannot be imported, or its name is already in use.
    """
    added = {name: load(point) for name, point in installed(ENTRY_POINTS, _OWN).items()}
    return {**_OWN, **added}
