"""All token IDs of a request in a variable-length encoding, without a loop over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Cells", "Half", "Widths", "pack"]

Cells: TypeAlias = "npt.NDArray[np.uint64]"
"""One encoded integer in each, first byte lowest, zero behind its last byte: shape (n,)."""

Widths: TypeAlias = "npt.NDArray[np.intp]"
"""Bytes that each takes: shape (n,)."""

Half: TypeAlias = tuple[bytes, bytes]
"""What is hashed for one block: the bytes before and the bytes after its parent's hash."""

_CELL: Final = 8
_WIDEST: Final = 5


def pack(
    cells: Cells,
    widths: Widths,
    *,
    block_size: int,
    opening: bytes,
    closing: bytes,
) -> list[bytes]:
    """The encoded integers of each block, between `opening` and `closing`.

    Args:
        cells: shape (n,), n a positive multiple of `block_size`.
        widths: bytes that each takes, at most 5; shape (n,).
        block_size: integers in a block.
        opening: put before each block.
        closing: put after each block: 1 to 8 bytes, of which the last is not zero.
    """
    num_blocks = len(cells) // block_size
    stride = len(opening) + _WIDEST * block_size + _CELL
    starts = widths.cumsum()
    stops = starts[block_size - 1 :: block_size].copy()
    starts -= widths
    moved = np.arange(len(opening), num_blocks * stride, stride)
    moved[1:] -= stops[:-1]
    stops += moved
    starts.reshape(num_blocks, block_size)[:] += moved[:, None]
    buffer = np.zeros(num_blocks * stride + _CELL, np.uint8)
    # Eight bytes from every address on. Each write spills zeros over what follows, and the next
    # one, which comes later because it lies behind, puts that right.
    anywhere = np.ndarray((num_blocks * stride,), "<u8", buffer, strides=(1,))
    anywhere[starts] = cells
    anywhere[stops] = int.from_bytes(closing, "little")
    rows = buffer[:-_CELL].reshape(num_blocks, stride)
    rows[:, : len(opening)] = np.frombuffer(opening, np.uint8)
    # numpy's byte strings end before their trailing zeros, which is where `closing` ends.
    encoded: list[bytes] = rows.view(f"S{stride}").ravel().tolist()
    return encoded
