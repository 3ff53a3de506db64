"""The compiled table of holders against the one in Python, and its memory."""

from __future__ import annotations

import random
import struct
import sys
import tracemalloc
from array import array
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from compiled import built
from hypothesis import given, settings
from hypothesis import strategies as st

from mmroute.kv_events import BlockIndex, holders
from mmroute.kv_events.holders import MAX_SLOTS, PythonTable, low_bits
from tools import needs

pytestmark = [pytest.mark.process, needs("cc", "the extension is optional")]

SLOTS = [0, 1, 2, 63, 64, 65, 500, MAX_SLOTS - 1]
ALL = array("H", SLOTS).tobytes()


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(tmp_path_factory.mktemp("extension"), "mmroute.kv_events.native._holders")


hashes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([2**64 - 1, 2**63, 2**32]),
    st.binary(max_size=12),
    st.binary(min_size=32, max_size=32),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "remove", "sweep", "reload"]),
        st.integers(0, 1),
        st.sampled_from(SLOTS),
        st.lists(hashes, max_size=70).map(tuple),
    ),
    max_size=30,
)


def records(table: Any) -> list[tuple[int, int, int]]:
    return sorted(struct.iter_unpack("<QHI", table.dump(ALL)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SLOTS), st.lists(hashes, max_size=70)), max_size=20))
def test_links_are_those_of_python(extension: ModuleType, changes: list[Any]) -> None:
    compiled, python = extension.Table(), PythonTable()
    for number, (slot, blocks) in enumerate(changes):
        for table in (compiled, python):
            known = tuple(blocks)
            if number % 3:
                table.link(slot, known, tuple(low_bits(block) ^ 2**63 - 1 for block in known))
            else:
                table.remove(slot, table.keys_of(known))
        assert records(compiled) == records(python)
        for block in blocks:
            assert compiled.keys_of((block,)) == python.keys_of((block,))


def test_links_of_keys_that_are_gone_take_no_memory_for_ever(extension: ModuleType) -> None:
    table, draw = extension.Table(), random.Random(0)
    sizes = []
    for _ in range(60):
        blocks = tuple(draw.getrandbits(64) for _ in range(20_000))
        keys = tuple(draw.getrandbits(64) for _ in range(20_000))
        table.link(1, blocks, keys)
        table.remove(1, table.keys_of(blocks))
        assert table.num_blocks() == 0
        sizes.append(sys.getsizeof(table))
    assert max(sizes[30:]) <= max(sizes[:30])


@settings(max_examples=100, deadline=None)
@given(steps, st.lists(hashes, max_size=80).map(tuple))
def test_answers_as_python_does(
    extension: ModuleType, changes: list[tuple[str, int, int, tuple[Any, ...]]], prompt: Any
) -> None:
    compiled = [extension.Table(), extension.Table()]
    python = [PythonTable(), PythonTable()]
    for name, which, slot, blocks in changes:
        for tables in (compiled, python):
            table = tables[which]
            if name in ("store", "remove"):
                getattr(table, name)(slot, blocks)
            elif name == "sweep":
                cursor = table.sweep(0, array("H", [slot]).tobytes(), 64)
                while cursor:
                    cursor = table.sweep(cursor, array("H", [slot]).tobytes(), 64)
            else:
                dumped = table.dump(ALL)
                tables[which] = type(table)()
                tables[which].load(dumped)
        for mine, reference in zip(compiled, python, strict=True):
            assert records(mine) == records(reference)
            assert mine.num_blocks() == reference.num_blocks()
    for asked in (prompt, *(blocks for *_, blocks in changes)):
        expected = holders._longest_by_python(python, asked, ALL)
        assert extension.longest(tuple(compiled), asked, ALL) == expected


def test_shards_that_grow_and_shrink_lose_nothing(extension: ModuleType) -> None:
    draw = random.Random(0)
    table, reference = extension.Table(), PythonTable()
    blocks = [draw.getrandbits(64) for _ in range(60_000)]
    for first in range(0, len(blocks), 500):
        some = tuple(blocks[first : first + 500])
        for slot in draw.sample(SLOTS, 2):
            table.store(slot, some)
            reference.store(slot, some)
    assert records(table) == records(reference)
    full = sys.getsizeof(table)
    draw.shuffle(blocks)
    for slot in SLOTS:
        table.remove(slot, tuple(blocks[:59_000]))
        reference.remove(slot, tuple(blocks[:59_000]))
    assert records(table) == records(reference)
    assert sys.getsizeof(table) < full / 10


@pytest.mark.parametrize(("workers", "most"), [(1, 33), (2, 33), (64, 3), (500, 1)])
def test_memory_of_a_block_and_worker(extension: ModuleType, workers: int, most: float) -> None:
    table, draw = extension.Table(), random.Random(0)
    blocks = tuple(draw.getrandbits(64) for _ in range(500_000 if workers < 3 else 50_000))
    empty = sys.getsizeof(table)
    slots = draw.sample(range(500), workers)
    step = len(blocks) // 25
    for first in range(0, len(blocks), step):  # a shard is half empty right after it grew
        for slot in slots:
            table.store(slot, blocks[first : first + step])
        pairs = workers * (first + step)
        assert first < step * 10 or sys.getsizeof(table) - empty <= most * pairs


def test_all_memory_is_given_back(extension: ModuleType) -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    table = extension.Table()
    for slot in range(100):
        table.store(slot, tuple(range(3000)))
        table.store(slot, tuple(range(slot)))
    during, _ = tracemalloc.get_traced_memory()
    table.sweep(0, array("H", range(50)).tobytes(), 1 << 30)
    for slot in range(50, 99):
        table.remove(slot, tuple(range(3000)))
    del table
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert during - before > 100_000
    assert after - before < 10_000


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_wrong_arguments_change_no_table(extension: ModuleType, make: str) -> None:
    table: Any = extension.Table() if make == "compiled" else PythonTable()
    for slot in (-1, MAX_SLOTS):
        with pytest.raises(ValueError, match=f"slot {slot} is not below 4096"):
            table.store(slot, (1,))
    for wrong in (b"x", struct.pack("<QHI", 1, MAX_SLOTS, 1), struct.pack("<QHI", 1, 0, 0)):
        with pytest.raises(ValueError, match="record"):
            table.load(wrong)
    with pytest.raises(TypeError):
        table.store(0, ("text",))
    assert table.num_blocks() == 0


def test_it_is_used_where_it_answers_rightly(
    extension: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "_holders", extension)
    monkeypatch.setattr(holders, "compiled", holders.compiled.__wrapped__)
    assert isinstance(holders.new_table(), extension.Table)
    index = BlockIndex()
    index.apply("w", b"\x93\xcb" + bytes(8) + b"\x90\x00")
    assert index.longest_prefixes([]) == {("w", 0): 0}

    class Wrong(PythonTable):
        def remove(self, slot: int, hashes: tuple[bytes | int, ...]) -> None:
            super().remove(slot, hashes[1:])

    wrong = SimpleNamespace(Table=Wrong, longest=holders._longest_by_python)
    monkeypatch.setattr(holders, "_holders", wrong)
    assert type(holders.new_table()) is PythonTable


def test_low_bits_of_every_form() -> None:
    full = bytes(range(32))
    assert low_bits(full) == low_bits(full[-8:]) == int.from_bytes(full[-8:], "big")
    assert low_bits(-1) == 2**64 - 1
    assert low_bits(b"\x01\x02") == 0x102
