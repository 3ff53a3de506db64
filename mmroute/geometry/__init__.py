"""Item to replacement: one module per algorithm, named after it."""

from mmroute.geometry.replacement import (
    AnyGeometry,
    EmbedRuns,
    Geometry,
    Overrides,
    Replacement,
    RequestContext,
    TokenIds,
)

__all__ = [
    "AnyGeometry",
    "EmbedRuns",
    "Geometry",
    "Overrides",
    "Replacement",
    "RequestContext",
    "TokenIds",
]
