"""The hashes of one prompt, as a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

_EVENT_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Digests(Sequence[bytes]):
    """The hashes of a prompt's full blocks or pages, in their order. Immutable."""

    hashes: tuple[bytes, ...]

    def __repr__(self) -> str:
        first = f": {self.hashes[0].hex()[:16]}…" if self.hashes else ""
        return f"<{len(self.hashes)} {type(self).__name__}{first}>"

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.hashes)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        return self.hashes[index]

    def hex(self) -> list[str]:
        """The hashes as lower-case hexadecimal digits."""
        return [digest.hex() for digest in self.hashes]


@dataclass(frozen=True, slots=True, repr=False)
class PageHashes(Digests):
    """The hashes of a prompt's full pages, in their order. Immutable.

    Attributes:
        hashes: one for each page, of 8 bytes or more
    """

    page_size: int  # the number of tokens in a page

    def event_ints(self) -> list[int]:
        """The hashes as events carry them: the first 64 bits, signed."""
        return [int.from_bytes(d[:_EVENT_BYTES], "big", signed=True) for d in self.hashes]
