"""All placement rules by name: those of this package, and those of other installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.placement.expansion import Placement
from mmroute.plugins import Registry
from mmroute.tokenizers import Tokenizer

PLACEMENTS: Final = Registry(
    "placement",
    "mmroute.placement",
    {
        "aligned_targets": "targets:AlignedTargets",
        "audio_beside_video": "targets:AudioBesideVideo",
        "merged_blank_lines": "blank_lines:MergedBlankLines",
        "numbered_tags": "numbered_tags:NumberedTags",
        "rendered": "targets:RenderedByTokenizer",
        "start": "targets:AtStart",
        "targets": "targets:Targets",
        "targets_after_first": "targets:TargetsAfterFirst",
        "targets_in_text": "targets:TargetsInText",
    },
)


def placement_of(name: str, tokenizer: Tokenizer, tokens: Mapping[str, int]) -> Placement:
    """The rule of a name, for one model."""
    known = {**tokens, "tokenizer": tokenizer}
    fields = PLACEMENTS.fields(name)
    given = {field: known[field] for field, needed in fields.items() if needed or field in known}
    placement: Placement = PLACEMENTS.find(name)(**given)
    return placement
