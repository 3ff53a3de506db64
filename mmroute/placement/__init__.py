"""Where items go in an un-expanded prompt, and the prompt with them in place."""

from mmroute.placement.expansion import Expansion, Insertion, PlaceholderRange, Placement

__all__ = ["Expansion", "Insertion", "PlaceholderRange", "Placement"]
