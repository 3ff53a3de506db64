"""The parts of an encoding that the compiled hasher needs."""

from __future__ import annotations

from typing import NamedTuple


class BlockLayout(NamedTuple):
    """The bytes that are hashed for each block, without its parent's hash and its token IDs."""

    head: bytes  # the bytes before the parent's hash
    opening: bytes  # the bytes between the parent's hash and the token IDs
    closing: bytes  # the bytes after the token IDs
    ending: bytes  # the last bytes of a block without extra keys
    # (first block, block after the last, bytes before the offset, bytes behind it, offset in the
    # first block) of blocks whose endings differ in the offset alone.
    runs: tuple[tuple[int, int, bytes, bytes, int], ...]
    # The last bytes of other blocks with extra keys, by the block's number.
    others: dict[int, bytes]
