"""The boxes of MP4 and QuickTime files.

Source: ISO/IEC 14496-12; FFmpeg 7 ``libavformat/mov.c`` for what a reader overlooks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mmroute.videos.header import not_predictable

_MAX_CHILDREN: Final = 1000
_HEADER: Final = struct.Struct(">I4s")

Integers: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(slots=True)
class Budget:
    """The number of parts of a file that may still be read."""

    parts: int

    def take(self, parts: int) -> None:
        self.parts -= parts
        if self.parts < 0:
            raise not_predictable("more boxes than are read of a file of its size")


@dataclass(slots=True)
class Box:
    """A box: the bytes between its header and its end, within a box at the top level."""

    data: bytes
    start: int
    end: int
    budget: Budget
    _children: dict[bytes, list[Box]] | None = None

    def all(self, name: bytes) -> Sequence[Box]:
        """The direct children of that name."""
        if self._children is None:
            self._children = self.within()
            self.budget.take(sum(map(len, self._children.values())))  # again, as they are kept
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
        for number in range(_MAX_CHILDREN):
            if end - at < _HEADER.size:  # readers ignore a rest, such as QuickTime's zero
                self.budget.take(number)
                return children
            length, name = unpack(self.data, at)
            if not _HEADER.size <= length <= end - at:
                raise not_predictable(f"a box {name!r} of {length} bytes does not fit in its own")
            child = Box(self.data, at + _HEADER.size, at + length, self.budget)
            children.setdefault(name, []).append(child)
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
