"""Item to replacement: one module per algorithm, named after it."""

from mmroute.geometry.replacement import (
    AnyGeometry,
    CachePlan,
    EmbedRuns,
    Geometry,
    ModelContext,
    Overrides,
    Replacement,
    TokenIds,
)

__all__ = [
    "AnyGeometry", "CachePlan", "EmbedRuns", "Geometry", "ModelContext", "Overrides", "Replacement",
    "TokenIds",
]  # fmt: skip
