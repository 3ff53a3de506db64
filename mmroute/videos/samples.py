"""The samples of an MP4 track: when each is decoded and shown, by its edits, and where it is.

Source: ISO/IEC 14496-12, 8.6.6; FFmpeg 8 ``libavformat/mov.c`` (`mov_fix_index`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mmroute.videos.boxes import Box, Integers
from mmroute.videos.header import not_predictable
from mmroute.videos.rationals import rescaled

_MAX_EDITS: Final = 100
_ONE: Final = 1 << 16  # 1 in 16.16 fixed point
_FEW: Final = 40_000
_FRAME: Final = 25  # bytes


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
    if box.end - box.start != 8 + row * count:  # FFmpeg then takes as many as it has room for
        raise not_predictable(f"an edit list of another size than that of {count} entries")
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
    parts, begins_at, left = [], 0, 2 * len(samples.shown)
    for edit in edits:
        duration = rescaled(edit.duration, scale, movie_scale)
        inside = (edit.start <= samples.shown) & (samples.shown < edit.start + duration)
        if edit.start >= 0 and inside.any():
            # FFmpeg counts on from when the first of them is decoded.
            shown = samples.shown[inside] - samples.decoded[inside][0]
            parts.append(np.sort(shown + begins_at))
            left -= len(shown)
            if left < 0:
                raise not_predictable("edits that show its frames many times")
        begins_at += duration
    return np.concatenate(parts or [samples.shown[:0]])


@dataclass(frozen=True, slots=True)
class Samples:
    """The frames of one track, in the order of the file and in the track's time units."""

    durations: Integers  # how long each frame lasts, shape (frames,), int64
    decoded: Integers  # when each frame is decoded, ascending, shape (frames,), int64
    shown: Integers  # when each frame is shown, shape (frames,), int64
    # The offset at which each frame begins in the file, in bytes, shape (frames,), int64.
    starts: Integers
    # The offset at which each frame ends in the file, in bytes, shape (frames,), int64.
    ends: Integers
    keys: Integers  # the indices of the key frames, ascending, shape (keys,), int64

    def check(self, media: list[tuple[int, int]]) -> None:
        """Check that a decoder can begin with the first frame, and that all are in the file."""
        if (self.ends <= self.starts).any():
            raise not_predictable("it has empty frames")
        if not len(self.keys) or self.keys[0]:
            raise not_predictable("its first frame is no key frame")
        if self.shown[0] != self.shown.min():
            raise not_predictable("frames are shown before its first key frame")
        opened, closed = np.array(media or [(0, 0)], np.int64).T
        place = opened.searchsorted(self.starts, "right") - 1
        if (place < 0).any() or (self.ends > closed[place]).any():
            raise not_predictable("its frames are not in its 'mdat' boxes")

    def followed_by(self, others: Samples) -> Samples:
        """These frames, and then others of the same track."""

        def joined(name: str) -> Integers:
            return np.concatenate([getattr(self, name), getattr(others, name)])

        names = "durations", "decoded", "shown", "starts", "ends"
        durations, decoded, shown, starts, ends = map(joined, names)
        keys = self.keys, others.keys + len(self.durations)
        return Samples(durations, decoded, shown, starts, ends, np.concatenate(keys))

    def before(self, end: int) -> Samples:
        """The first frames, up to the first that does not end before an offset in the file."""
        beyond = (self.ends > end).nonzero()[0]
        first = slice(int(beyond[0]) if len(beyond) else len(self.ends))
        return Samples(
            self.durations[first],
            self.decoded[first],
            self.shown[first],
            self.starts[first],
            self.ends[first],
            self.keys[self.keys < first.stop],
        )

    def has_leading_frames(self) -> bool:
        """Whether frames are shown before the key frame that is decoded before them."""
        earliest_left = np.minimum.accumulate(self.shown[::-1])[::-1]
        return bool((earliest_left[self.keys] < self.shown[self.keys]).any())


def most_frames(room: int) -> int:
    """The most frames that are read of a track: a few numbers of each take more than its bytes."""
    return _FEW + room // _FRAME


def read_samples(tables: Box, room: int, most: int | None = None) -> Samples:
    """The samples that the tables in ``stbl`` describe; at most so many, or as many as bytes."""
    times = tables.only(b"stts").table(2)
    total = int(times[:, 0].sum())
    constant, count = (box := tables.only(b"stsz")).unpack("II", 4)
    if count != total:
        raise not_predictable(f"{count} samples, and times for {total}")
    if total > room or (most is not None and total > most) or constant > room:  # also if it is cut
        raise not_predictable(f"{total} frames in {room} bytes")
    durations = np.repeat(times[:, 1], times[:, 0])
    sizes = np.full(count, constant) if constant else box.table(1, offset=8)[:, 0]
    starts = _starts(tables, sizes)
    decoded = durations.cumsum() - durations
    shown = shown_at(decoded, _offsets(tables, total))
    return Samples(durations, decoded, shown, starts, starts + sizes, _keys(tables, total))


def shown_at(decoded: Integers, offsets: Integers | int) -> Integers:
    """When frames are shown. FFmpeg delays them all so that none is shown before it is decoded."""
    return decoded + offsets + max(0, -int(np.min(offsets, initial=0)))


def first_lost(tables: Box, end: int) -> int | None:
    """When the first sample is decoded that does not end before an offset; None if all do.

    Each byte of sound may be a sample, so samples of one size are not listed.
    """
    most = most_frames(end)
    size, count = tables.only(b"stsz").unpack("II", 4)
    if not size or not count:
        samples = read_samples(tables, end, most)
        lost = samples.decoded[samples.ends > end]
        return int(lost[0]) if len(lost) else None
    times = tables.only(b"stts").table(2)
    chunks, per_chunk = _chunks(tables, count, most)
    whole = np.clip((end - chunks) // size, 0, per_chunk)
    cut = (whole < per_chunk).nonzero()[0]
    if not len(cut):
        return None
    before = int(per_chunk[: cut[0]].sum() + whole[cut[0]])
    row = int(times[:, 0].cumsum().searchsorted(before, "right"))
    if row == len(times):
        raise not_predictable(f"{count} samples, and times for fewer")
    numbers, lasting = times[:row, 0], times[:row, 1]
    return int(numbers @ lasting + (before - numbers.sum()) * times[row, 1])


def _starts(tables: Box, sizes: Integers) -> Integers:
    """The offsets of all samples, which are in chunks."""
    if not len(sizes):
        return sizes
    chunks, per_chunk = _chunks(tables, len(sizes), len(sizes))
    before = sizes.cumsum() - sizes
    return np.repeat(chunks - before[per_chunk.cumsum() - per_chunk], per_chunk) + before


def _chunks(tables: Box, total: int, most: int) -> tuple[Integers, Integers]:
    """The offset in the file, and the number of samples, of each of at most so many chunks."""
    wide = bool(tables.all(b"co64"))
    chunks = tables.only(b"co64" if wide else b"stco").table(1, kind="u8" if wide else "u4")[:, 0]
    runs = tables.only(b"stsc").table(3)
    firsts = np.append(runs[:, 0], len(chunks) + 1)
    lengths = firsts[1:] - firsts[:-1]
    if not len(runs) or firsts[0] != 1 or (lengths <= 0).any() or (runs[:, 1:] <= 0).any():
        raise not_predictable("its samples are not in chunks")
    if runs[:, 2].max() != 1 or int(lengths @ runs[:, 1]) != total or len(chunks) > most:
        raise not_predictable(f"its chunks do not hold {total} samples of one kind")
    return chunks, np.repeat(runs[:, 1], lengths)


def _offsets(tables: Box, total: int) -> Integers | int:
    """Each frame's time from being decoded to being shown: int64, or 0 for all frames."""
    boxes = tables.all(b"ctts")
    if not boxes:
        return 0
    runs = boxes[0].table(2, kind="i4")
    if len(boxes) > 1 or (runs[:, 0] < 0).any() or int(runs[:, 0].sum()) != total:
        raise not_predictable("not one composition offset for each frame")
    return np.repeat(runs[:, 1], runs[:, 0])


def _keys(tables: Box, total: int) -> Integers:
    for box in tables.all(b"stss"):
        return box.table(1)[:, 0] - 1
    return np.arange(total)  # every frame is a key frame
