"""The boxes of MP4 and QuickTime files: those at the top level, and those within others.

Source: ISO/IEC 14496-12; FFmpeg 7 ``libavformat/mov.c`` for what a reader overlooks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mmroute.images.parts import most_parts
from mmroute.videos.header import not_predictable

if TYPE_CHECKING:
    from mmroute.videos.samples import Samples

_MAX_CHILDREN: Final = 1000
_MAX_MOOV: Final = 1 << 26
_READ: Final = frozenset({b"moov", b"moof", b"sidx"})
_HEADER: Final = struct.Struct(">I4s")
_LONG_HEADER: Final = 16

Integers: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(slots=True)
class Box:
    """A box: the bytes between its header and its end, within a box at the top level."""

    data: bytes
    start: int
    end: int
    _children: dict[bytes, list[Box]] | None = None

    def all(self, name: bytes) -> Sequence[Box]:
        """The direct children of that name."""
        if self._children is None:
            self._children = self.within()
        return self._children.get(name, ())

    def only(self, *path: bytes) -> Box:
        """The descendant at a path of names, each of which must occur exactly once."""
        box = self
        for name in path:
            found = box.all(name)
            if len(found) != 1:
                raise not_predictable(f"{len(found)} boxes {name.decode()!r} where one is needed")
            box = found[0]
        return box

    def within(self, skip: int = 0) -> dict[bytes, list[Box]]:
        """The direct children by name, which begin `skip` bytes after this box's header."""
        children: dict[bytes, list[Box]] = {}
        at, end, unpack = self.start + skip, self.end, _HEADER.unpack_from
        for _ in range(_MAX_CHILDREN):
            if end - at < _HEADER.size:  # readers ignore a rest, such as QuickTime's zero
                return children
            length, name = unpack(self.data, at)
            if not _HEADER.size <= length <= end - at:
                raise not_predictable(f"a box {name!r} of {length} bytes does not fit in its own")
            children.setdefault(name, []).append(Box(self.data, at + _HEADER.size, at + length))
            at += length
        raise not_predictable(f"more than {_MAX_CHILDREN} boxes in one")

    @property
    def is_wide(self) -> bool:
        """Whether its times have 64 bits and not 32, which is version 1 of most boxes."""
        return self.unpack("B")[0] == 1

    def unpack(self, form: str, offset: int = 0) -> tuple[int, ...]:
        """Big-endian integers at an offset."""
        if self.end - self.start < offset + struct.calcsize(">" + form):
            raise not_predictable("a box is too short")
        return struct.unpack_from(">" + form, self.data, self.start + offset)

    def table(self, columns: int, *, kind: str = "u4", offset: int = 4) -> Integers:
        """A table as an array, shape (rows, columns), int64; `offset` is where its row count is."""
        (rows,) = self.unpack("I", offset)
        start = self.start + offset + 4
        if rows * columns * int(kind[1]) > self.end - start:
            raise not_predictable(f"a table of {rows} rows does not fit in its box")
        flat = np.frombuffer(self.data, ">" + kind, rows * columns, start)
        return flat.astype(np.int64).reshape(rows, columns)


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
    # The samples in fragments that were read: by track, and when the track begins.
    samples: dict[tuple[int, int], Samples | None] = field(default_factory=dict, init=False)


def read_layout(file: BinaryIO, size: int) -> Layout:
    """Walk the boxes at the top level, and read all but the media."""
    at, movies, media, fragments, indexes = 0, [], [], [], []
    room, cut_at, media_end = _MAX_MOOV, None, size
    most = most_parts(size)
    for _ in range(most):
        if at == size:
            break
        name, start, end = _top_level_box(file, at, size)
        if name == b"mdat":
            cut_at, end = (size, size) if end > size else (None, end)
            media.append((start, end))
        elif name == b"mfra" and end == size:
            media_end = at
        elif name in _READ:
            room -= end - start
            box = _content(file, name, start, end, room)
            if name == b"moov":
                movies.append(box)
            elif name == b"sidx":
                indexes.append((end, box))
            else:
                fragments.append((at, box))
        at = end
    else:
        raise not_predictable(f"more than {most} boxes at the top level of {size} bytes")
    if len(movies) != 1:
        raise not_predictable(f"{len(movies)} boxes 'moov' where one is needed")
    return Layout(movies[0], media, fragments, indexes, media_end, cut_at)


def _content(file: BinaryIO, name: bytes, start: int, end: int, room: int) -> Box:
    if room < 0:
        raise not_predictable(f"a box {name.decode()!r} of {end - start} bytes")
    file.seek(start)
    data = file.read(end - start)
    return Box(data, 0, len(data))


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
