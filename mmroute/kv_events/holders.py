"""Tables of the slots (ranks of workers) that hold a block: a compiled one, and one in Python."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NewType, Protocol

from mmroute.hashing.vllm import event_int

try:
    from mmroute.kv_events.native import _holders
except ImportError:
    _holders = None  # type: ignore[assignment]  # it is optional

LowBits = NewType("LowBits", int)
"""The low 64 bits of a block hash, the most that every publisher gives."""

Blocks = NewType("Blocks", int)
"""A number of blocks, where a number of tokens could be meant."""

MAX_SLOTS: Final = 4096
_RECORD: Final = struct.Struct("<QHI")  # low bits, slot, copies
_LOW_64: Final = (1 << 64) - 1
_PROBE_STEPS: Final = 100
_PROBE_SWEEPS: Final = 25


def low_bits(block_hash: bytes | int) -> LowBits:
    """The low 64 bits of a hash, which an event may hold in full or as these bits."""
    return LowBits(block_hash & _LOW_64 if isinstance(block_hash, int) else event_int(block_hash))


class Table(Protocol):
    """Which slots hold a block, and how many copies of it each slot has."""

    def store(self, slot: int, hashes: tuple[bytes | int, ...], /) -> None:
        """Add a copy of each block to a slot."""

    def remove(self, slot: int, hashes: tuple[bytes | int, ...], /) -> None:
        """Take a copy of each block from a slot. It is no error if the slot does not hold one."""

    def link(self, slot: int, hashes: tuple[bytes | int, ...], keys: tuple[int, ...], /) -> None:
        """Store keys, and note for which of them each of an engine's hashes stands."""

    def keys_of(self, hashes: tuple[bytes | int, ...], /) -> tuple[int, ...]:
        """The keys for which hashes stand; none of one that is not linked to a key in the table.

        A hash that cannot be told from another one has the keys of both.
        """

    def sweep(self, cursor: int, slots: bytes, most: int, /) -> int:
        """Take all blocks from some slots, a part of the table at a time."""

    def dump(self, slots: bytes, /) -> bytes:
        """Records of the blocks of some slots: low bits (8 bytes), slot (2), copies (4)."""

    def load(self, records: bytes, /) -> None:
        """Add records as `dump` writes them."""

    def num_blocks(self) -> int:
        """The number of blocks that any slot holds, swept or not."""


class PythonTable:
    """The reference of `Table`: a mask of slots for each block."""

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._more: dict[tuple[int, int], int] = {}  # copies beyond the first
        self._links: dict[int, int] = {}

    def store(self, slot: int, hashes: tuple[bytes | int, ...]) -> None:
        bit = 1 << _checked(slot)
        for low in map(low_bits, hashes):
            mask = self.masks.get(low, 0)
            if mask & bit:
                self._more[low, slot] = self._more.get((low, slot), 0) + 1
            self.masks[low] = mask | bit

    def remove(self, slot: int, hashes: tuple[bytes | int, ...]) -> None:
        bit = 1 << _checked(slot)
        for low in map(low_bits, hashes):
            if more := self._more.pop((low, slot), 0):
                if more > 1:
                    self._more[low, slot] = more - 1
            elif left := self.masks.get(low, 0) & ~bit:
                self.masks[low] = left
            else:
                self.masks.pop(low, None)

    def link(self, slot: int, hashes: tuple[bytes | int, ...], keys: tuple[int, ...]) -> None:
        self.store(slot, keys)
        if len(self._links) > 2 * len(self.masks):
            self._links = {low: key for low, key in self._links.items() if key in self.masks}
        self._links.update(zip(map(low_bits, hashes), keys, strict=True))

    def keys_of(self, hashes: tuple[bytes | int, ...]) -> tuple[int, ...]:
        found = (self._links.get(low_bits(each), -1) for each in hashes)
        return tuple(key for key in found if key in self.masks)

    def sweep(self, cursor: int, slots: bytes, most: int) -> int:
        live = ~_mask(slots)
        self.masks = {low: left for low, mask in self.masks.items() if (left := mask & live)}
        self._more = {key: n for key, n in self._more.items() if live >> key[1] & 1}
        return 0

    def dump(self, slots: bytes) -> bytes:
        live = _mask(slots)
        return b"".join(
            _RECORD.pack(low, slot, 1 + self._more.get((low, slot), 0))
            for low, mask in self.masks.items()
            for slot in _bits(mask & live)
        )

    def load(self, records: bytes) -> None:
        try:
            for low, slot, copies in _RECORD.iter_unpack(records):
                if slot >= MAX_SLOTS or not copies:
                    raise ValueError(f"a record of slot {slot} and {copies} copies")
                self.store(slot, (low,))
                if copies > 1:
                    self._more[low, slot] = copies - 1
        except struct.error as error:
            raise ValueError(f"{len(records)} bytes are no records of a table") from error

    def num_blocks(self) -> int:
        return len(self.masks)


def _checked(slot: int) -> int:
    if not 0 <= slot < MAX_SLOTS:
        raise ValueError(f"slot {slot} is not below {MAX_SLOTS}")
    return slot


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _mask(slots: bytes) -> int:
    return sum(1 << slot for slot in set(array("H", slots)))


def _longest_by_python(
    tables: Sequence[Any], hashes: Iterable[bytes | int], slots: bytes
) -> list[Blocks]:
    matching = _mask(slots)
    lengths: dict[int, int] = {}
    length = 0
    for low in map(low_bits, hashes):
        if not matching:
            break
        held = 0
        for table in tables:
            held |= table.masks.get(low, 0)
        lengths |= dict.fromkeys(_bits(matching & ~held), length)
        matching &= held
        length += 1
    return [Blocks(lengths.get(slot, length)) for slot in array("H", slots)]


def longest(
    tables: tuple[Table, ...], hashes: tuple[bytes | int, ...], slots: bytes
) -> list[Blocks]:
    """How many leading blocks each slot holds, each block in any of the tables."""
    find = _holders.longest if compiled() else _longest_by_python
    return find(tables, hashes, slots)


def new_table() -> Table:
    """An empty table."""
    return _holders.Table() if compiled() else PythonTable()


@cache
def compiled() -> bool:
    """Whether tables are compiled: the extension is there, and answers a probe as Python does."""
    return _holders is not None and _probed(_holders.Table, _holders.longest) == _probed(
        PythonTable, _longest_by_python
    )


def _probed(table: Callable[[], Any], find: Callable[..., list[Blocks]]) -> list[object]:
    """The answers of tables after changes that are drawn at random from a fixed seed."""
    draw = random.Random(0)
    tables = table(), table()
    slots = array("H", [0, 1, 63, 64, 700, MAX_SLOTS - 1]).tobytes()
    blocks = (*range(16), b"short", b"a block hash with more bytes than are compared")
    answers: list[object] = []
    for step in range(_PROBE_STEPS):
        change = draw.choice([t.store for t in tables] + [t.remove for t in tables])
        change(draw.choice(array("H", slots)), tuple(draw.choices(blocks, k=8)))
        if step % _PROBE_SWEEPS == 0:
            tables[0].sweep(0, slots[:2], 1 << 20)
            answers += [sorted(_RECORD.iter_unpack(t.dump(slots))) for t in tables]
        answers.append(find(tables, blocks, slots))
    return answers
