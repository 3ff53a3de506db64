"""Fragmented MP4: the samples of a track in the boxes ``moof``.

Source: ISO/IEC 14496-12; FFmpeg 8 ``libavformat/mov.c`` (`mov_read_trun`, `mov_read_sidx`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mmroute.videos.boxes import Box, Integers
from mmroute.videos.header import not_predictable
from mmroute.videos.layout import Layout, Runs
from mmroute.videos.samples import Samples, most_frames, shown_at

_BASE, _DESCRIPTION = 0x01, 0x02  # flags of a header, tfhd
_DEFAULTS: Final = (0x08, 0x10, 0x20)  # likewise: duration, size and flags of a sample
_FROM_MOOF: Final = 0x020000
_OFFSET, _FIRST_FLAGS = 0x01, 0x04  # flags of a run, trun
_COLUMNS: Final = (0x100, 0x200, 0x400, 0x800)  # likewise: duration, size, flags, delay
_DELAY: Final = 3  # the column of delays, which are signed
_MAX_NUMBER: Final = 1 << 62
_WEIGHT: Final = 4  # a run or an index takes so much longer to read than a box
_NO_KEY: Final = 0x01010000  # flags of a sample: it is no sync sample, or depends on others


def read_fragments(layout: Layout, track: int, *, after: int) -> Samples | None:
    """The samples of one track in all fragments; None if there are none."""
    if not layout.runs:
        layout.runs.update(_read(layout))
    if track not in layout.runs:
        return None
    runs = layout.runs[track]
    durations, sizes, flags, delays, decoded, starts = runs.columns
    if after:
        decoded = decoded + after * (np.arange(len(decoded)) < runs.untimed)
    if (np.diff(decoded) <= 0).any():
        raise not_predictable("its fragments overlap")
    keys = (flags & _NO_KEY == 0).nonzero()[0]
    return Samples(durations, decoded, shown_at(decoded, delays), starts, starts + sizes, keys)


def ends_of_indexes(layout: Layout) -> dict[int, int]:
    """The ends that the last box ``sidx`` of each track tells, in its time units."""
    ends = {}
    for _, index in layout.indexes:
        layout.budget.take(_WEIGHT)
        time, _, rows = _indexed(index)
        ends[index.unpack("I", 4)[0]] = time + int(rows[:, 1].sum())
    return ends


def first_fragments(layout: Layout) -> Layout:
    """The boxes that FFmpeg reads when it opens the file, from which it takes the rate.

    It stops at media once it knows an index of all that follows.
    """
    for at, index in layout.indexes:
        layout.budget.take(_WEIGHT)
        _, offset, rows = _indexed(index)
        if (rows[:, 0] >> 31).any():
            raise not_predictable("it has an index of indexes")
        if not offset and at + int(rows[:, 0].sum()) == layout.end:
            limit = max([at, *(start for start, _ in layout.media[:1])])
            return replace(layout, fragments=[f for f in layout.fragments if f[0] < limit])
    return layout


def _indexed(index: Box) -> tuple[int, int, Integers]:
    """The first time of a box ``sidx``, the offset of its media, and a row for each fragment."""
    form, rows_at = ("QQ", 28) if index.is_wide else ("II", 20)
    time, offset = index.unpack(form, 12)
    return time, offset, index.table(3, offset=rows_at)


@dataclass(slots=True)
class _Track:
    """What was read of one track."""

    defaults: tuple[int, ...]  # duration, size and flags of samples that do not tell their own
    runs: list[Integers] = field(default_factory=list)
    end: int = 0  # when the last run ends, in the track's time units
    untimed: int = 0  # as in `Runs`
    timed: bool = False  # whether a fragment told when it begins


def _tracks(movie: Box) -> dict[int, _Track]:
    """The tracks of the boxes ``trex``, with the defaults of their fragments."""
    tracks: dict[int, _Track] = {}
    for box in movie.only(b"mvex").all(b"trex"):
        number, _, *defaults = box.unpack("5I", 4)
        tracks.setdefault(number, _Track(tuple(defaults)))
    return tracks


def _read(layout: Layout) -> dict[int, Runs]:
    """The samples of all tracks in all fragments."""
    tracks = _tracks(layout.movie)
    left = most_frames(layout.media_size) // 2
    for at, fragment in layout.fragments:
        times: dict[int, int] = {}
        for number, part in enumerate(fragment.within().get(b"traf", ())):
            header = part.only(b"tfhd")
            flags, found = header.unpack("II")
            if found not in tracks:
                raise not_predictable("it has fragments of a track without defaults (a box 'trex')")
            track = tracks[found]
            if flags & _BASE:
                (base,) = header.unpack("Q", 8)
            elif flags & _FROM_MOOF or not number:
                base = at
            else:
                raise not_predictable("a fragment's data begin where those of another track end")
            place = 8 + 8 * bool(flags & _BASE) + 4 * bool(flags & _DESCRIPTION)
            values = list(track.defaults)
            for column, flag in enumerate(_DEFAULTS):
                if flags & flag:
                    (values[column],) = header.unpack("I", place)
                    place += 4
            time = times.get(found, track.end)
            for box in part.all(b"tfdt"):
                (time,) = box.unpack("Q" if box.is_wide else "I", 4)
                track.timed = True
            for box in part.all(b"trun"):
                layout.budget.take(_WEIGHT)
                run = _run(box, base, values, time, left)
                left -= run.shape[1]
                track.untimed += 0 if track.timed else run.shape[1]
                time = track.end = time + int(run[0].sum())
                track.runs.append(run)
            times[found] = time
    return {
        number: Runs(np.concatenate(track.runs, axis=1), track.untimed)
        for number, track in tracks.items()
        if track.runs
    }


def _run(box: Box, base: int, defaults: list[int], time: int, most: int) -> Integers:
    """At most so many samples that follow each other: their columns, as in `Runs`."""
    flags, count, offset = box.unpack("IIi")
    if not flags & _OFFSET:
        raise not_predictable("a fragment does not tell where its data begin")
    first_flags = box.unpack("I", 12) if flags & _FIRST_FLAGS else ()
    given = [column for column, flag in enumerate(_COLUMNS) if flags & flag]
    start = box.start + 12 + 4 * len(first_flags)
    if not 0 < count <= most or count * 4 * len(given) > box.end - start:
        raise not_predictable(f"a fragment of {count} frames does not fit in its box or its file")
    if max(time, base) > _MAX_NUMBER:
        raise not_predictable("a fragment at a time or place that no file has")
    columns = np.empty((6, count), np.int64)
    for column, value in enumerate([*defaults, 0]):
        columns[column] = value
    for number, column in enumerate(given):
        kind = ">i4" if column == _DELAY else ">u4"
        rows = np.frombuffer(box.data, kind, count * len(given), start)
        columns[column] = rows[number :: len(given)]
    if first_flags:
        columns[2, 0] = first_flags[0]
    for column, first in ((0, time), (1, base + offset)):
        columns[4 + column] = columns[column].cumsum() - columns[column] + first
    return columns
