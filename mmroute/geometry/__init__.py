"""Makes the replacement of an item: a grid counts the tokens, and a layout makes them."""

from typing import TYPE_CHECKING

from mmroute.geometry.replacement import EmbedRuns, ModelContext, Overrides, Replacement
from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.geometry.geometry import Geometry
    from mmroute.geometry.grid import CachePlan, Count, Grid
    from mmroute.geometry.layout import Layout

__all__ = [
    "CachePlan", "Count", "EmbedRuns", "Geometry", "Grid", "Layout", "ModelContext", "Overrides",
    "Replacement",
]  # fmt: skip

# What only loading a model needs is imported when it is asked for.
__getattr__ = lazily(
    __name__,
    {
        "CachePlan": "mmroute.geometry.grid",
        "Count": "mmroute.geometry.grid",
        "Geometry": "mmroute.geometry.geometry",
        "Grid": "mmroute.geometry.grid",
        "Layout": "mmroute.geometry.layout",
    },
)
