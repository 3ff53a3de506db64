"""The ranks of a fleet, and the slot that stands for each of them in all tables of blocks."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mmroute.kv_events.groups import Group
from mmroute.kv_events.holders import MAX_SLOTS, Table
from mmroute.kv_events.streams import Position

_MOST_RANKS: Final = MAX_SLOTS - 1  # a rank that is cleared takes a slot beside its old one
_SWEPT_AT_ONCE: Final = 2048  # entries for each batch: some 20 microseconds


class WorkerRank(NamedTuple):
    """One data-parallel rank of a worker: each has a cache of its own."""

    worker: str
    data_parallel_rank: int


@dataclass(slots=True)
class Rank:
    """A rank's cache: its slot in all tables, and how far its events were entered."""

    slot: int
    topic: str | None = None
    position: Position | None = None
    groups: dict[int | None, Group] = field(default_factory=dict)


class Ranks(dict[WorkerRank, Rank]):
    """The ranks, in the order of their first batches.

    What a rank held is forgotten at once when it gets another slot. The old slot is swept out of
    the tables later, a part at each step, and is free again then.
    """

    def __init__(self, tables: Mapping[Any, Table]) -> None:
        super().__init__()
        self._tables = tables
        self._free = list(range(MAX_SLOTS - 1, -1, -1))
        self._retired: list[int] = []
        self._sweeping = self._sweep()
        self._packed: bytes | None = None

    def of_worker(self, worker: str) -> list[WorkerRank]:
        """The ranks of one worker."""
        return [rank for rank in self if rank.worker == worker]

    def add(self, rank: WorkerRank, slot: int | None = None) -> Rank:
        """A new rank, in a free slot or in one of those that were taken for it."""
        if len(self) == _MOST_RANKS:
            raise ValueError(f"an index has room for {_MOST_RANKS} ranks; take a second one")
        added = self[rank] = Rank(self._new_slot() if slot is None else slot)
        self._packed = None
        return added

    def take(self, slots: Collection[int]) -> None:
        """Take slots for ranks that are added with them."""
        self._free = [slot for slot in self._free if slot not in slots]

    def remove(self, rank: WorkerRank) -> None:
        """Forget a rank, and what it held."""
        self._retired.append(self.pop(rank).slot)
        self._packed = None

    def move(self, rank: Rank) -> None:
        """Give a rank another slot: what the old one holds counts no more."""
        self._retired.append(rank.slot)
        rank.slot, self._packed = self._new_slot(), None

    def sweep(self) -> None:
        """Make the next step of sweeping."""
        next(self._sweeping)

    def packed(self) -> bytes:
        """The slots of all ranks, for `longest`."""
        if self._packed is None:
            self._packed = packed(rank.slot for rank in self.values())
        return self._packed

    def _new_slot(self) -> int:
        while not self._free:
            next(self._sweeping)  # there are fewer ranks than slots
        return self._free.pop()

    def _sweep(self) -> Iterator[None]:
        """Take retired slots from all tables, a part at each step, and make them free again."""
        while True:
            gone, self._retired = self._retired, []
            for table in tuple(self._tables.values()) if gone else ():
                cursor = table.sweep(0, packed(gone), _SWEPT_AT_ONCE)
                while cursor:
                    yield
                    cursor = table.sweep(cursor, packed(gone), _SWEPT_AT_ONCE)
            self._free += gone
            yield


def packed(slots: Iterable[int]) -> bytes:
    """Slots as 16-bit integers."""
    return array("H", slots).tobytes()
