"""Where the images go in an un-expanded prompt, and the prompt with them in place."""

from mmroute.placement.expansion import Expansion, PlaceholderRange, Placement

__all__ = ["Expansion", "PlaceholderRange", "Placement"]
