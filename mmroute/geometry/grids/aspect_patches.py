"""Muse Glimmer and Muse Spark: the patch grid closest to the aspect ratio under a token limit.

Sources: transformers ``models/muse_glimmer/image_processing_muse_glimmer.py``
(`smart_resize`), vLLM ``model_executor/models/muse_glimmer.py``. Checked with both.
vLLM ``models/muse_spark/common/processor.py`` (``find_resize_target``,
``_preprocess_single_video``). Checked with it. Another frontend of the engine sorts ties.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from mmroute.errors import item_refused
from mmroute.geometry.grid import CachePlan, Count, MergedFrames, MergedPatches
from mmroute.requests.items import ImageSize, VideoSize


@dataclass(frozen=True, slots=True)
class AspectPatches(MergedPatches):
    """Resizes an image to the patch grid that is closest to its aspect ratio."""

    max_tokens: int
    counted_merge_size: int | None = None
    searches_nearest: bool = False
    sorts_ties: bool = False

    def largest_item(self, _: CachePlan) -> int:
        return self.max_tokens

    def patches(self, image: ImageSize) -> tuple[int, int, int]:
        rows, columns = self._best(image)
        return 1, rows * self.merge_size, columns * self.merge_size

    def count(self, image: ImageSize) -> Count:
        patches = math.prod(self.patches(image))
        return Count(whole=patches // (self.counted_merge_size or self.merge_size) ** 2)

    def _best(self, image: ImageSize) -> tuple[int, int]:
        side, most = self.factor, self.max_tokens
        if self.searches_nearest:
            return _nearest(image.height, image.width, side, most, sorts_ties=self.sorts_ties)
        exact = _within(image.height / side, image.width / side, most)
        best = _least_distorted(*exact, image.height / image.width, most)
        return best or (max(1, round(exact[0])), max(1, round(exact[1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestFrames(MergedFrames):
    """Resizes a video's frames alike, and counts one frame's tokens for each group of frames."""

    max_tokens: int
    temporal_patch_size: int
    fps: float
    max_frames: int

    def largest_item(self, _: CachePlan) -> int:
        return self.max_frames // self.temporal_patch_size * self.max_tokens

    def count(self, video: VideoSize) -> Count:
        frames = self.frames(video)
        if frames.fps <= 0:
            raise item_refused(video, "its frame rate is unknown")
        held, group = len(frames.indices), self.temporal_patch_size
        wanted = int(frames.total * self.fps / frames.fps) if self.fps else held
        count = min(max(wanted, group), self.max_frames, held)
        count = max(group, count // group * group)
        taken = list(frames.indices)
        if held > count:
            taken = [taken[at] for at in np.linspace(0, held - 1, count, dtype=int)]
        times = [index / frames.fps for index in taken[::group]]
        groups = max(1, len(taken) // group)
        tokens = math.prod(_nearest(video.height, video.width, self.factor, self.max_tokens))
        return Count(groups, 1, tokens, times=tuple(times[:groups]))


def _within(rows: float, columns: float, most: int) -> tuple[float, float]:
    """Rows and columns of the same aspect, shrunk to the limit."""
    return _of_area(rows, columns, most) if rows * columns > most else (rows, columns)


def _of_area(rows: float, columns: float, area: int) -> tuple[float, float]:
    aspect = columns / rows
    rows = (area / aspect) ** 0.5
    return rows, rows * aspect


def _least_distorted(
    rows: float, columns: float, aspect: float, most: int, *, sorts_ties: bool = False
) -> tuple[int, int] | None:
    """The grid of the closest aspect around the exact one; None if none is within the limit."""
    # Of equally close grids the engine takes the first in the order of this very set.
    near = set(itertools.product(_around(rows), _around(columns)))
    grids = [
        (r, c)
        for r, c in (sorted(near) if sorts_ties else near)
        if min(r, c) >= 1 and r * c <= most
    ]
    return min(grids, key=lambda grid: abs(grid[0] / grid[1] - aspect), default=None)


def _nearest(
    height: int, width: int, side: int, most: int, *, sorts_ties: bool = False
) -> tuple[int, int]:
    """The grid of the closest aspect, or else the nearest one within the limit."""
    rows, columns = _within(height / side, width / side, most)
    if rows * columns < 1:
        rows, columns = _of_area(rows, columns, 1)
    best = _least_distorted(rows, columns, height / width, most, sorts_ties=sorts_ties)
    if best is not None:
        return best
    all_rows = np.arange(1, most + 1)
    all_columns = np.clip(round(columns), 1, most // all_rows)
    distances = ((all_rows - rows) * side) ** 2 + ((all_columns - columns) * side) ** 2
    nearest = int(np.argmin(distances))
    return int(all_rows[nearest]), int(all_columns[nearest])


def _around(length: float) -> tuple[int, int]:
    return math.floor(length), math.ceil(length)
