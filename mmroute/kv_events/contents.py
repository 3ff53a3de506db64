"""Enters stored blocks by what they hold, for an index that knows no engine's hashes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from mmroute.engines.events import BlockHash, BlockStored, Contents, StoredHashes
from mmroute.kv_events.groups import GPU, hash_size
from mmroute.kv_events.holders import Table
from mmroute.kv_events.ranks import Rank


class Listener(Protocol):
    """What hears of the workers' prompts. The index calls it with its lock held."""

    def stored(
        self,
        worker: str,
        event: BlockStored | StoredHashes,
        contents: Contents,
        keys: tuple[int, ...],
        parent: int | None,
        /,
    ) -> None:
        """Take the blocks of an event, by their keys and that of the block before."""

    def interrupted(self, worker: str, /, *, restarted: bool) -> None:
        """Take it that events of a worker were lost, or that another process took its place."""


class ByContent:
    """Enters events into tables of keys. The engine's hashes tell parents and removed blocks."""

    def __init__(self, tables: Mapping[Any, Table]) -> None:
        self.listener: Listener | None = None
        self._tables = tables
        self._late: list[tuple[Table, BlockStored | StoredHashes]] = []

    def store(
        self, worker: str, rank: Rank, table: Table, event: BlockStored | StoredHashes
    ) -> None:
        """Store the blocks of an event, whose group is one of the rank's."""
        if not self._store(worker, rank, table, event):
            self._late.append((table, event))  # another group may tell of the same blocks

    def removed(
        self, slot: int, table: Table, hashes: tuple[BlockHash, ...]
    ) -> tuple[BlockHash, ...]:
        """The keys of blocks that a slot does not hold any more."""
        self.finish(slot)
        return table.keys_of(hashes)

    def finish(self, slot: int) -> None:
        """Store the blocks of which only another event of the batch told what they hold."""
        for table, event in self._late:
            for block_hash in event.block_hashes:
                if (key := self.key_of(block_hash)) is not None:
                    table.link(slot, (block_hash,), (key,))
        self._late.clear()

    def key_of(self, block_hash: BlockHash) -> int | None:
        """The key for which a hash stands; None if it is not known, or not which of two."""
        found = {key for table in self._tables.values() for key in table.keys_of((block_hash,))}
        return found.pop() if len(found) == 1 else None

    def _store(
        self, worker: str, rank: Rank, table: Table, event: BlockStored | StoredHashes
    ) -> bool:
        """Whether the event tells all that the hashes of its blocks cover."""
        try:
            contents = event.contents()
        except (ValueError, OverflowError):  # of a form that no engine has; the hashes are known
            return False
        size, parent = event.block_size, event.parent_block_hash
        if (
            contents is None
            or not size
            or len(contents.token_ids) != len(event.block_hashes) * size
        ):
            return False  # blocks of a window are left out, or nothing tells of tokens or keys
        before = None if parent is None else self.key_of(parent)
        # Groups of larger blocks have some of the keys of the smallest.
        scale = size // math.gcd(hash_size(rank.groups.values()) or 0, size)
        if (parent is not None and before is None) or (scale > 1 and contents.extra):
            return False  # nothing tells which part of a larger block the extra keys are of
        keys = contents.keys(size // scale, before)[scale - 1 :: scale]
        if self.listener is not None and scale == 1 and event.medium in (None, GPU):
            self.listener.stored(worker, event, contents, keys, before)
        table.link(rank.slot, event.block_hashes, keys)
        return True
