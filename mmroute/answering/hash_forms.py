"""The block hashes of an answer, in the form in which a router looks them up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from mmroute.answering.routing import Routing


class HashForm(StrEnum):
    """The form of the hashes in an answer."""

    HEX = "hex"
    """In full, as hexadecimal digits."""
    INT = "int"
    """As the 64-bit integers of the engine's events: of blocks unsigned, of pages signed.

    A JSON reader that knows doubles only, such as JavaScript's, rounds those beyond 2^53. The last
    16 digits of the hexadecimal form are the same 64 bits.
    """
    DYNAMO = "dynamo"
    """The local and sequence hashes of Dynamo's router, whatever the engine, as such integers."""


class HashFields(TypedDict, total=False):
    """The hashes in an answer; `reads_cache` only where the engine reuses none of these blocks."""

    block_hashes: list[str] | list[int]
    published_blocks: int
    local_hashes: list[int]
    sequence_hashes: list[int]
    reads_cache: bool


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The block hashes that a request asks for."""

    # The engine's `--prefix-caching-hash-algo`; None for the engine's default.
    algorithm: str | None
    block_size: int | None  # the number of tokens in a block; None for the engine's default
    seed: str | None  # the engine's PYTHONHASHSEED
    form: HashForm = HashForm.HEX  # the form of the hashes in the answer

    def of(self, routing: Routing) -> HashFields:
        """The hashes of an answer."""
        hashes = self._hashes(routing)
        if not routing.reads_cache:
            hashes["reads_cache"] = False
        return hashes

    def _hashes(self, routing: Routing) -> HashFields:
        if self.form is HashForm.DYNAMO:
            local, sequence = routing.dynamo_hashes(self.block_size)
            return {"local_hashes": local, "sequence_hashes": sequence}
        hashes = routing.hashes(self.algorithm, block_size=self.block_size, seed=self.seed)
        written = hashes.event_ints() if self.form is HashForm.INT else hashes.hex()
        published = routing.hashing.settings.num_published(len(hashes))
        if published == len(hashes):
            return {"block_hashes": written}
        return {"block_hashes": written, "published_blocks": published}
