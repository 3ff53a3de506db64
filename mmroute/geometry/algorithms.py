"""All geometries by name. Only loading a model needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.geometry.anyres import AnyRes
from mmroute.geometry.fixed_grid import FixedGrid
from mmroute.geometry.hd_transform import HdTransform
from mmroute.geometry.patch_rows import PatchRows
from mmroute.geometry.replacement import Geometry
from mmroute.geometry.smart_resize import SmartResize
from mmroute.geometry.soft_tokens import SoftTokens

__all__ = ["GEOMETRIES"]

GEOMETRIES: Final[Mapping[str, type[Geometry]]] = {
    "anyres": AnyRes,
    "fixed_grid": FixedGrid,
    "hd_transform": HdTransform,
    "patch_rows": PatchRows,
    "smart_resize": SmartResize,
    "soft_tokens": SoftTokens,
}
"""Name in a family spec -> dataclass. Its fields are the values the spec must give."""
