"""The edit list of an MP4 track: which of its frames are shown, and when.

Source: ISO/IEC 14496-12, 8.6.6; FFmpeg 8 ``libavformat/mov.c`` (`mov_fix_index`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.videos.boxes import Box, Integers
from mmroute.videos.header import not_predictable
from mmroute.videos.rationals import rescaled
from mmroute.videos.samples import Samples

_MAX_EDITS: Final = 100
_ONE: Final = 1 << 16  # 1 in 16.16 fixed point


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of a track that is shown, or a pause."""

    duration: int  # how long it lasts, in the movie's time units
    start: int  # when it begins, in the track's time units; -1 for a pause


def read_edits(track: Box) -> list[Edit]:
    """The edits of a track, in order; none if all of it is shown."""
    lists = track.all(b"edts")
    if not lists:
        return []
    if len(lists) > 1:
        raise not_predictable(f"{len(lists)} edit lists")
    box = lists[0].only(b"elst")
    form, row = ("QqI", 20) if box.is_wide else ("IiI", 12)
    (count,) = box.unpack("I", 4)
    if count > _MAX_EDITS:
        raise not_predictable(f"an edit list of {count} entries")
    edits = []
    for number in range(count):
        duration, start, rate = box.unpack(form, 8 + row * number)
        if rate != _ONE or start < -1:
            raise not_predictable("an edit at another rate")
        edits.append(Edit(duration, start))
    pauses = [edit.start < 0 for edit in edits]
    if edits and (all(pauses) or True in pauses[pauses.index(False) :]):
        raise not_predictable("an edit list of pauses alone, or with one behind a part")
    return edits


def delay_of(edits: list[Edit]) -> int:
    """The pause before the first part, in the movie's time units."""
    return edits[0].duration if edits and edits[0].start < 0 else 0


def shown_after(samples: Samples, edits: list[Edit], movie_scale: int, scale: int) -> Integers:
    """When the frames are shown that the edits leave, in the track's time units, ascending."""
    if not edits:
        return np.sort(samples.shown)
    if sum(edit.start >= 0 for edit in edits) > 1 and samples.has_leading_frames():
        raise not_predictable("several edits, and frames that need the key frame before the last")
    parts, begun = [], 0
    for edit in edits:
        duration = rescaled(edit.duration, scale, movie_scale)
        inside = (edit.start <= samples.shown) & (samples.shown < edit.start + duration)
        if edit.start >= 0 and inside.any():
            # FFmpeg counts on from when the first of them is decoded.
            shown = samples.shown[inside] - samples.decoded[inside][0]
            parts.append(np.sort(shown + begun))
        begun += duration
    return np.concatenate(parts or [samples.shown[:0]])
