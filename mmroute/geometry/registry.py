"""All grids and layouts by name: the ones of this package, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.plugins import Registry

_GRIDS: Final[Mapping[str, str]] = {
    "anyres": "anyres:AnyRes",
    "aspect_patches": "aspect_patches:AspectPatches",
    "budgeted_frames": "patch_budget:BudgetedFrames",
    "canvas_tiles": "canvas_tiles:CanvasTiles",
    "cell_rows": "cell_rows:CellRows",
    "clipped_resize": "clipped_resize:ClippedResize",
    "clipped_video": "clipped_resize:ClippedVideo",
    "closest_tiles": "closest_tiles:ClosestTiles",
    "coded_rows": "smart_resize:CodedRows",
    "covering_tiles": "covering_tiles:CoveringTiles",
    "crops_of_few": "view_and_crops:CropsOfFew",
    "fit_square": "fit_square:FitSquare",
    "fixed_count": "fixed_count:FixedCount",
    "fixed_frames": "fixed_frames:FixedFrames",
    "frame_pairs": "frame_groups:FramePairs",
    "hd_transform": "hd_transform:HdTransform",
    "long_edge_tiles": "long_edge_tiles:LongEdgeTiles",
    "mel_frames": "strided_audio:MelFrames",
    "minimax_resize": "minimax_resize:MiniMaxResize",
    "minimax_video": "minimax_resize:MiniMaxVideo",
    "navit": "navit:Navit",
    "nearest_frames": "aspect_patches:NearestFrames",
    "overlapping_crops": "canvas_tiles:OverlappingCrops",
    "padded_audio": "padded_audio:PaddedAudio",
    "pan_and_scan": "pan_and_scan:PanAndScan",
    "patch_budget": "patch_budget:PatchBudget",
    "raised_resize": "raised_resize:RaisedResize",
    "raised_video": "raised_resize:RaisedVideo",
    "resized_video": "frame_groups:ResizedVideo",
    "searched_scale": "searched_scale:SearchedScale",
    "shared_budget": "shared_budget:SharedBudget",
    "slices": "slices:Slices",
    "smart_resize": "smart_resize:SmartResize",
    "stitched_crops": "stitched_crops:StitchedCrops",
    "strided_audio": "strided_audio:StridedAudio",
    "thumbnail_tiles": "thumbnail_tiles:ThumbnailTiles",
    "token_budget": "token_budget:TokenBudget",
    "two_pass_tiles": "closest_tiles:TwoPassTiles",
    "unpadded_tiles": "hd_transform:UnpaddedTiles",
    "upscaled_patches": "upscaled_patches:UpscaledPatches",
    "view_and_crops": "view_and_crops:ViewAndCrops",
    "windows": "windows:Windows",
}
_LAYOUTS: Final[Mapping[str, str]] = {
    "fill": "framed:Fill",
    "framed": "framed:Framed",
    "numbered_fill": "framed:NumberedFill",
    "paired_rows": "rows:PairedRows",
    "rows": "rows:Rows",
    "sized_text": "tile_text:SizedText",
    "stretched": "framed:Stretched",
    "tile_text": "tile_text:TileText",
    "tiles": "tile_text:Tiles",
    "timed": "timed:Timed",
    "two_views": "rows:TwoViews",
}

GRIDS: Final = Registry("grid", "mmroute.geometry.grids", _GRIDS)
LAYOUTS: Final = Registry("layout", "mmroute.geometry.layouts", _LAYOUTS)
