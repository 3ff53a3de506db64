"""All geometries by name: the ones of this package, and those of installed packages.

Only loading a model needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from mmroute.geometry.anyres import AnyRes
from mmroute.geometry.aspect_patches import AspectPatches
from mmroute.geometry.audio_frames import AudioFrames, FixedAudio
from mmroute.geometry.canvas_tiles import CanvasTiles
from mmroute.geometry.closest_grid import ClosestGrid
from mmroute.geometry.crop_grid import CropGrid
from mmroute.geometry.fixed_grid import FixedGrid
from mmroute.geometry.fixed_sequence import FixedSequence
from mmroute.geometry.glm_resize import GlmResize
from mmroute.geometry.hd_transform import HdTransform
from mmroute.geometry.minimax_resize import MiniMaxResize
from mmroute.geometry.minimax_video import MiniMaxVideo
from mmroute.geometry.navit import Navit, NavitWithSize
from mmroute.geometry.padded_audio import PaddedAudio
from mmroute.geometry.paddleocr_resize import PaddleOcrResize
from mmroute.geometry.patch_budget import PatchBudget
from mmroute.geometry.patch_rows import PatchRows
from mmroute.geometry.replacement import AnyGeometry
from mmroute.geometry.row_column_tiles import RowColumnTiles
from mmroute.geometry.row_end_resize import RowEndResize
from mmroute.geometry.shared_budget import SharedBudget
from mmroute.geometry.slices import Slices
from mmroute.geometry.smart_resize import SmartResize
from mmroute.geometry.soft_tokens import SoftTokens
from mmroute.geometry.thumbnail_tiles import ThumbnailTiles
from mmroute.geometry.tile_lines import TileLines
from mmroute.geometry.timed_frames import TimedFrames
from mmroute.geometry.timed_pairs import TimedPairs
from mmroute.geometry.token_budget import TokenBudget
from mmroute.geometry.video_frames import NumberedFrames, PooledFrames
from mmroute.geometry.video_resize import VideoResize
from mmroute.geometry.window_crops import WindowCrops
from mmroute.plugins import with_installed

__all__ = ["ENTRY_POINTS", "geometries"]

ENTRY_POINTS: Final = "mmroute.geometries"
"""Entry point group of other packages' geometries: name in a spec -> ``module:Class``."""

_OWN: Final[Mapping[str, type[AnyGeometry]]] = {
    "anyres": AnyRes,
    "aspect_patches": AspectPatches,
    "audio_frames": AudioFrames,
    "canvas_tiles": CanvasTiles,
    "closest_grid": ClosestGrid,
    "crop_grid": CropGrid,
    "fixed_audio": FixedAudio,
    "fixed_grid": FixedGrid,
    "fixed_sequence": FixedSequence,
    "glm_resize": GlmResize,
    "hd_transform": HdTransform,
    "minimax_resize": MiniMaxResize,
    "minimax_video": MiniMaxVideo,
    "navit": Navit,
    "navit_with_size": NavitWithSize,
    "numbered_frames": NumberedFrames,
    "padded_audio": PaddedAudio,
    "paddleocr_resize": PaddleOcrResize,
    "patch_budget": PatchBudget,
    "patch_rows": PatchRows,
    "pooled_frames": PooledFrames,
    "row_column_tiles": RowColumnTiles,
    "row_end_resize": RowEndResize,
    "shared_budget": SharedBudget,
    "slices": Slices,
    "smart_resize": SmartResize,
    "soft_tokens": SoftTokens,
    "thumbnail_tiles": ThumbnailTiles,
    "tile_lines": TileLines,
    "timed_frames": TimedFrames,
    "timed_pairs": TimedPairs,
    "token_budget": TokenBudget,
    "video_resize": VideoResize,
    "window_crops": WindowCrops,
}


@cache
def geometries() -> Mapping[str, type[AnyGeometry]]:
    """Name in a family spec -> dataclass. Its fields are the values the spec must give.

    Raises:
        SpecError: an installed package's geometry cannot be imported, or has a name that is taken.
    """
    return with_installed(_OWN, ENTRY_POINTS)
