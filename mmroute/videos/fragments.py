"""Fragmented MP4: the samples of a track in the boxes ``moof``.

Source: ISO/IEC 14496-12; FFmpeg 8 ``libavformat/mov.c`` (`mov_read_trun`, `mov_read_sidx`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from mmroute.images.parts import most_parts
from mmroute.videos.boxes import Box, Integers
from mmroute.videos.header import not_predictable
from mmroute.videos.layout import Layout
from mmroute.videos.samples import Samples, most_frames, shown_at

_BASE, _DESCRIPTION = 0x01, 0x02  # flags of a header, tfhd
_DEFAULTS: Final = (0x08, 0x10, 0x20)  # likewise: duration, size and flags of a sample
_FROM_MOOF: Final = 0x020000
_OFFSET, _FIRST_FLAGS = 0x01, 0x04  # flags of a run, trun
_COLUMNS: Final = (0x100, 0x200, 0x400, 0x800)  # likewise: duration, size, flags, delay
_MAX_NUMBER: Final = 1 << 62
_WEIGHT: Final = 8  # a run takes so much longer to read than a box
_NO_KEY: Final = 0x01010000  # flags of a sample: it is no sync sample, or depends on others


def read_fragments(layout: Layout, track: int, *, after: int) -> Samples | None:
    """The samples of one track in all fragments; None if there are none."""
    known = layout.samples
    if (track, after) not in known:
        known[track, after] = _read(layout, track, after)
    return known[track, after]


def check_few_parts(layout: Layout) -> None:
    """Check that the fragments are no more than are read fast, for each of the tracks."""
    parts = [part for _, fragment in layout.fragments for part in fragment.all(b"traf")]
    runs = sum(len(part.all(b"trun")) for part in parts)
    passes = len(layout.movie.all(b"trak")) * (len(layout.fragments) + len(parts))
    if max(2 * passes, _WEIGHT * (runs + len(layout.indexes))) > most_parts(layout.end):
        raise not_predictable(f"more fragments than are read of {layout.end} bytes")


def _read(layout: Layout, track: int, after: int) -> Samples | None:
    runs = list(_runs(layout, track, after))
    if not runs:
        return None
    durations, sizes, flags, delays, decoded, starts = np.concatenate(runs, axis=1)
    if (np.diff(decoded) <= 0).any():
        raise not_predictable("its fragments overlap")
    keys = (flags & _NO_KEY == 0).nonzero()[0]
    return Samples(durations, decoded, shown_at(decoded, delays), starts, starts + sizes, keys)


def end_of_index(layout: Layout, track: int) -> int | None:
    """The end that the last box ``sidx`` of a track tells, in its time units; None without one."""
    end = None
    for _, index in layout.indexes:
        if index.unpack("I", 4)[0] == track:
            time, _, rows = _indexed(index)
            end = time + int(rows[:, 1].sum())
    return end


def first_fragments(layout: Layout) -> Layout:
    """The boxes that FFmpeg reads when it opens the file, from which it takes the rate.

    It stops at media once it knows an index of all that follows.
    """
    for at, index in layout.indexes:
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


def _sums_before(column: Integers) -> Integers:
    return column.cumsum() - column


def _defaults(movie: Box, track: int) -> tuple[int, ...]:
    """Duration, size and flags of samples that do not tell their own."""
    for box in movie.only(b"mvex").all(b"trex"):
        number, _, *defaults = box.unpack("5I", 4)
        if number == track:
            return tuple(defaults)
    raise not_predictable("it has fragments of a track without defaults (a box 'trex')")


def _runs(layout: Layout, track: int, after: int) -> Iterator[Integers]:
    """The runs of one track in all fragments, each as `_run`; the arguments of `read_fragments`."""
    defaults = _defaults(layout.movie, track)
    left = most_frames(layout.media_size) // 2
    for at, fragment in layout.fragments:
        time = after
        for number, part in enumerate(fragment.all(b"traf")):
            header = part.only(b"tfhd")
            flags, found = header.unpack("II")
            if found != track:
                continue
            if flags & _BASE:
                (base,) = header.unpack("Q", 8)
            elif flags & _FROM_MOOF or not number:
                base = at
            else:
                raise not_predictable("a fragment's data begin where those of another track end")
            place = 8 + 8 * bool(flags & _BASE) + 4 * bool(flags & _DESCRIPTION)
            values = list(defaults)
            for column, flag in enumerate(_DEFAULTS):
                if flags & flag:
                    (values[column],) = header.unpack("I", place)
                    place += 4
            for times in part.all(b"tfdt"):
                (time,) = times.unpack("Q" if times.is_wide else "I", 4)
            for box in part.all(b"trun"):
                run = _run(box, base, values, time, left)
                left -= run.shape[1]
                time = after = time + int(run[0].sum())
                yield run


def _run(box: Box, base: int, defaults: list[int], time: int, most: int) -> Integers:
    """At most so many samples that follow each other: their columns, shape (6, samples), int64.

    These are durations, sizes, flags and delays; when each is decoded, in the track's time units;
    and where each begins in the file, in bytes.
    """
    flags, count = box.unpack("II")
    if not flags & _OFFSET:
        raise not_predictable("a fragment does not tell where its data begin")
    (offset,) = box.unpack("i", 8)
    first_flags = box.unpack("I", 12) if flags & _FIRST_FLAGS else ()
    given = [column for column, flag in enumerate(_COLUMNS) if flags & flag]
    start = box.start + 12 + 4 * len(first_flags)
    if not 0 < count <= most or count * 4 * len(given) > box.end - start:
        raise not_predictable(f"a fragment of {count} frames does not fit in its box or its file")
    columns = np.repeat(np.array([*defaults, 0], np.int64)[:, None], count, axis=1)
    if given:
        rows = np.frombuffer(box.data, ">u4", count * len(given), start).reshape(count, -1)
        columns[given] = rows.T
        columns[-1] = columns[-1].astype(np.uint32).astype(np.int32)
    if first_flags:
        columns[2, 0] = first_flags[0]
    if max(time, base) > _MAX_NUMBER:
        raise not_predictable("a fragment at a time or place that no file has")
    decoded, starts = time + _sums_before(columns[0]), base + offset + _sums_before(columns[1])
    return np.vstack([columns, decoded, starts])
