"""All placement rules by name: the ones of this package, and those of installed packages.

Only loading a model needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Protocol

from mmroute.placement.blank_lines import MergedBlankLines
from mmroute.placement.exact_targets import ExactRule
from mmroute.placement.expansion import Placement
from mmroute.placement.numbered_tags import NumberedTags
from mmroute.placement.targets import AudioBesideVideo, RenderedByTokenizer, Targets
from mmroute.plugins import installed, load
from mmroute.tokenizers import Tokenizer

ENTRY_POINTS: Final = "mmroute.placements"
"""Entry point group of other packages' rules: name in a spec -> ``module:Class``."""


class PlacementRule(Protocol):
    """Makes the placement of one model."""

    def build(self, tokenizer: Tokenizer, tokens: Mapping[str, int], /) -> Placement:
        """The rule for one model.

        Args:
            tokenizer: of the model.
            tokens: the spec's tokens, name -> ID.

        Raises:
            ModelError: the model lacks what the rule needs.
        """


_OWN: Final[Mapping[str, PlacementRule]] = {
    "targets": Targets,
    "audio_beside_video": AudioBesideVideo,
    "merged_blank_lines": MergedBlankLines,
    "numbered_tags": NumberedTags,
    "rendered": RenderedByTokenizer,
    "exact_pads": ExactRule(words=("<image>", "<|placeholder|>")),
    "exact_rows": ExactRule(words=("<placeholder>",)),
    "exact_in_text": ExactRule(in_text=True),
}


@cache
def placement_rules() -> Mapping[str, PlacementRule]:
    """Name in a family spec -> rule.

    Raises:
        SpecError: an installed package's rule cannot be imported, or has a name that is taken.
    """
    added = {name: load(point) for name, point in installed(ENTRY_POINTS, _OWN).items()}
    return {**_OWN, **added}
