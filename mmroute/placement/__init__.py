"""The rules that put the replacements of items in the places of their placeholders."""

from mmroute.placement.expansion import Expansion, Insertion, PlaceholderRange, Placement

__all__ = ["Expansion", "Insertion", "PlaceholderRange", "Placement"]
