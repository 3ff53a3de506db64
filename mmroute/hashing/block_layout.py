"""The parts of an encoding that the compiled hasher needs."""

from __future__ import annotations

from typing import NamedTuple


class BlockLayout(NamedTuple):
    """The bytes that are hashed for each block, without its parent's hash and its token IDs.

    Attributes:
        head: the bytes before the parent's hash.
        opening: the bytes between the parent's hash and the token IDs.
        closing: the bytes after the token IDs.
        ending: the last bytes of a block without extra keys.
        runs: (first block, block after the last, bytes before the offset, bytes behind it,
            offset in the first block) of blocks whose endings differ in the offset alone.
        others: the last bytes of other blocks with extra keys, by the block's number.
    """

    head: bytes
    opening: bytes
    closing: bytes
    ending: bytes
    runs: tuple[tuple[int, int, bytes, bytes, int], ...]
    others: dict[int, bytes]
