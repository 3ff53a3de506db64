"""Integers of variable length, packed block by block, without a loop over them.

CBOR and pickle write a token ID in 1 to 5 bytes. Each encoded ID is held in a uint64 first, its
bytes lowest first; `pack` writes all of them behind each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["AroundParent", "EncodedIntegers", "Widths", "pack"]

EncodedIntegers: TypeAlias = "npt.NDArray[np.uint64]"
"""One encoded integer in each element, first byte lowest, zero behind its last: shape (n,)."""

Widths: TypeAlias = "npt.NDArray[np.intp]"
"""The number of bytes of each encoded integer: shape (n,)."""

AroundParent: TypeAlias = tuple[bytes, bytes]
"""What is hashed for one block, but for its parent's hash: the bytes before it, and after it."""

_WORD: Final = 8  # bytes of an element
_WIDEST: Final = 5


def pack(
    encoded: EncodedIntegers,
    widths: Widths,
    *,
    block_size: int,
    opening: bytes,
    closing: bytes,
) -> list[bytes]:
    r"""The encoded integers of each block, between `opening` and `closing`.

    Args:
        encoded: shape (n,), n a positive multiple of `block_size`.
        widths: bytes of each, at most 5; shape (n,).
        block_size: integers in a block.
        opening: put before each block.
        closing: put after each block: 1 to 8 bytes, of which the last is not zero.

    >>> encoded = np.array([0x05, 0x0118, 0x06, 0x07], np.uint64)
    >>> pack(encoded, np.array([1, 2, 1, 1]), block_size=2, opening=b"[", closing=b"]")
    [b'[\x05\x18\x01]', b'[\x06\x07]']
    """
    num_blocks = len(encoded) // block_size
    stride = len(opening) + _WIDEST * block_size + _WORD
    starts = widths.cumsum()
    stops = starts[block_size - 1 :: block_size].copy()
    starts -= widths
    moved = np.arange(len(opening), num_blocks * stride, stride)
    moved[1:] -= stops[:-1]
    stops += moved
    starts.reshape(num_blocks, block_size)[:] += moved[:, None]
    buffer = np.zeros(num_blocks * stride + _WORD, np.uint8)
    # A view of eight bytes from every address on. Writing an integer also writes zeros over the
    # bytes behind it; the next integer, which is written later, overwrites those.
    at_any_byte = np.ndarray((num_blocks * stride,), "<u8", buffer, strides=(1,))
    at_any_byte[starts] = encoded
    at_any_byte[stops] = int.from_bytes(closing, "little")
    rows = buffer[:-_WORD].reshape(num_blocks, stride)
    rows[:, : len(opening)] = np.frombuffer(opening, np.uint8)
    # numpy's byte strings end before their trailing zeros, which is where `closing` ends.
    blocks: list[bytes] = rows.view(f"S{stride}").ravel().tolist()
    return blocks
