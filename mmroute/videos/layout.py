"""The boxes at the top level of MP4 and QuickTime files.

Source: ISO/IEC 14496-12; FFmpeg 7 ``libavformat/mov.c`` for what a reader overlooks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from mmroute.images.parts import most_parts
from mmroute.videos.boxes import Box, Budget, Integers
from mmroute.videos.header import not_predictable

_MAX_MOOV: Final = 1 << 26
_READ: Final = frozenset({b"moov", b"moof", b"sidx"})
_HEADER: Final = struct.Struct(">I4s")
_LONG_HEADER: Final = 16
_FRAGMENT: Final = 3  # a fragment that is kept takes so much more memory than a box


@dataclass(frozen=True, slots=True)
class Runs:
    """The samples of one track in all fragments."""

    # Durations, sizes, flags and delays; when each is decoded, in the track's time units; and where
    # each begins in the file, in bytes: shape (6, samples), int64.
    columns: Integers
    untimed: int  # the number of the first samples for which no fragment tells when they begin


@dataclass(frozen=True, slots=True)
class Layout:
    """The boxes at the top level."""

    movie: Box  # the `moov` box
    # The start and end of each `mdat` box's content in the file, in bytes.
    media: list[tuple[int, int]]
    fragments: list[tuple[int, Box]]  # the offset in the file, and the content, of each `moof` box
    # The offset at which each `sidx` box ends in the file, and its content.
    indexes: list[tuple[int, Box]]
    end: int  # the size of the file in bytes, but for an `mfra` box behind the media
    # The size of the file in bytes if it ends within its last `mdat` box; else None.
    cut_at: int | None
    budget: Budget  # of the boxes that are read
    runs: dict[int, Runs] = field(default_factory=dict, init=False)  # of the fragments, by track

    @property
    def media_size(self) -> int:
        """The bytes of all media."""
        return sum(end - start for start, end in self.media)


def read_layout(file: BinaryIO, size: int) -> Layout:
    """Walk the boxes at the top level, and read all but the media."""
    at, movies, media, fragments, indexes = 0, [], [], [], []
    room, cut_at, media_end = _MAX_MOOV, None, size
    budget = Budget(most_parts(size))
    while at != size:
        name, start, end = _top_level_box(file, at, size)
        budget.take(_FRAGMENT if name == b"moof" else 1)
        if name == b"mdat":
            cut_at, end = (size, size) if end > size else (None, end)
            media.append((start, end))
        elif name == b"mfra" and end == size:
            media_end = at
        elif name in _READ:
            room -= end - start
            if room < 0:
                raise not_predictable(f"a box {name.decode()!r} of {end - start} bytes")
            file.seek(start)
            box = Box(file.read(end - start), 0, end - start, budget)
            if name == b"moov":
                movies.append(box)
            elif name == b"sidx":
                indexes.append((end, box))
            else:
                fragments.append((at, box))
        at = end
    if len(movies) != 1:
        raise not_predictable(f"{len(movies)} boxes 'moov' where one is needed")
    return Layout(movies[0], media, fragments, indexes, media_end, cut_at, budget)


def _top_level_box(file: BinaryIO, at: int, size: int) -> tuple[bytes, int, int]:
    """Name, start of the content, and end of the box that begins at an offset."""
    file.seek(at)
    head = file.read(_LONG_HEADER)
    if len(head) < _HEADER.size:
        raise not_predictable("it ends within the header of a box")
    length, name = _HEADER.unpack_from(head)
    start = _HEADER.size
    if length == 0:
        length = size - at
    elif length == 1:
        length, start = int.from_bytes(head[_HEADER.size :]), _LONG_HEADER
    if length < start or (length > size - at and name != b"mdat"):
        raise not_predictable(f"it ends before its box {name!r}, cut short or broken")
    return name, at + start, at + length
