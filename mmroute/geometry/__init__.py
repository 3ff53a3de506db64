"""Image size to replacement: one module per algorithm, named after it."""

from mmroute.geometry.replacement import EmbedRuns, Geometry, Replacement, TokenIds

__all__ = ["EmbedRuns", "Geometry", "Replacement", "TokenIds"]
