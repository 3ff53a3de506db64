"""Item to replacement: a grid says how many tokens it has, a layout what stands there.

A family spec names one of each (``grid`` and ``layout``), and lists the arguments of requests that
change the grid's numbers (``accepts``).
"""

from mmroute.geometry.geometry import AnyGeometry, Geometry
from mmroute.geometry.grid import CachePlan, Count, Grid
from mmroute.geometry.layout import Layout
from mmroute.geometry.replacement import (
    EmbedRuns,
    ModelContext,
    Overrides,
    Replacement,
    TokenIds,
)

__all__ = [
    "AnyGeometry", "CachePlan", "Count", "EmbedRuns", "Geometry", "Grid", "Layout", "ModelContext",
    "Overrides", "Replacement", "TokenIds",
]  # fmt: skip
