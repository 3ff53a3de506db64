"""All geometries by name: the ones of this package, and those of installed packages.

A geometry is imported when the first model needs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, Final

from mmroute.geometry.replacement import AnyGeometry
from mmroute.plugins import installed, load

ENTRY_POINTS: Final = "mmroute.geometries"
"""Entry point group of other packages' geometries: name in a spec -> ``module:Class``."""

_OWN: Final[Mapping[str, str]] = {
    "anyres": "anyres:AnyRes",
    "aspect_patches": "aspect_patches:AspectPatches",
    "audio_frames": "audio_frames:AudioFrames",
    "canvas_tiles": "canvas_tiles:CanvasTiles",
    "closest_grid": "closest_grid:ClosestGrid",
    "crop_grid": "crop_grid:CropGrid",
    "fixed_audio": "audio_frames:FixedAudio",
    "fixed_grid": "fixed_grid:FixedGrid",
    "fixed_sequence": "fixed_sequence:FixedSequence",
    "glm_resize": "glm_resize:GlmResize",
    "hd_transform": "hd_transform:HdTransform",
    "minimax_resize": "minimax_resize:MiniMaxResize",
    "minimax_video": "minimax_video:MiniMaxVideo",
    "navit": "navit:Navit",
    "navit_with_size": "navit:NavitWithSize",
    "numbered_frames": "video_frames:NumberedFrames",
    "padded_audio": "padded_audio:PaddedAudio",
    "paddleocr_resize": "paddleocr_resize:PaddleOcrResize",
    "patch_budget": "patch_budget:PatchBudget",
    "patch_rows": "patch_rows:PatchRows",
    "pooled_frames": "video_frames:PooledFrames",
    "row_column_tiles": "row_column_tiles:RowColumnTiles",
    "row_end_resize": "row_end_resize:RowEndResize",
    "shared_budget": "shared_budget:SharedBudget",
    "slices": "slices:Slices",
    "smart_resize": "smart_resize:SmartResize",
    "soft_tokens": "soft_tokens:SoftTokens",
    "thumbnail_tiles": "thumbnail_tiles:ThumbnailTiles",
    "tile_lines": "tile_lines:TileLines",
    "timed_frames": "timed_frames:TimedFrames",
    "timed_pairs": "timed_pairs:TimedPairs",
    "token_budget": "token_budget:TokenBudget",
    "video_resize": "video_resize:VideoResize",
    "window_crops": "window_crops:WindowCrops",
}


@cache
def _entries() -> Mapping[str, EntryPoint]:
    own = {
        name: EntryPoint(name, f"mmroute.geometry.{where}", ENTRY_POINTS)
        for name, where in _OWN.items()
    }
    return own | installed(ENTRY_POINTS, own)


def geometry_names() -> tuple[str, ...]:
    """The names that a family spec may give.

    Raises:
        SpecError: an installed package's geometry has a name that is taken.
    """
    return tuple(_entries())


@cache
def geometry_class(name: str) -> type[AnyGeometry]:
    """The dataclass of a name in a family spec.

    Raises:
        SpecError: as `geometry_names`; an installed package's geometry cannot be imported.
    """
    found: type[AnyGeometry] = load(_entries()[name])
    return found


def geometry_fields(name: str) -> Mapping[str, bool]:
    """The values that a spec gives a geometry: name -> whether it must give it.

    Raises:
        SpecError: as `geometry_class`.
    """
    kind: Any = geometry_class(name)
    return {f.name: f.default is dataclasses.MISSING for f in dataclasses.fields(kind)}
