"""Item to replacement: one module per algorithm, named after it."""

from mmroute.geometry.replacement import (
    AnyGeometry,
    CachePlan,
    EmbedRuns,
    Geometry,
    Overrides,
    Replacement,
    RequestContext,
    TokenIds,
)

__all__ = [
    "AnyGeometry",
    "CachePlan",
    "EmbedRuns",
    "Geometry",
    "Overrides",
    "Replacement",
    "RequestContext",
    "TokenIds",
]
