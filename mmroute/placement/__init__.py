"""Where the images go in an un-expanded prompt, and the prompt with them in place."""

from mmroute.placement.blank_lines import MergedBlankLines
from mmroute.placement.expansion import Expansion, PlaceholderRange, Placement
from mmroute.placement.numbered_tags import NumberedTags
from mmroute.placement.rendered import RenderedByTokenizer
from mmroute.placement.single_token import SingleToken

__all__ = [
    "Expansion",
    "MergedBlankLines",
    "NumberedTags",
    "PlaceholderRange",
    "Placement",
    "RenderedByTokenizer",
    "SingleToken",
]
