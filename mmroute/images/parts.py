"""The number of parts that are read of a file, so that no file takes long for its size."""

from __future__ import annotations

from typing import Final

_FEW: Final = 10_000
_BYTES: Final = 50


def most_parts(size: int) -> int:
    """The most parts that are read of a file of so many bytes: boxes, chunks, pages or blocks.

    A part takes a few microseconds, however small it is. Encoders write larger ones.
    """
    return _FEW + size // _BYTES
