"""What the index says of its own state: silence, lag, gaps, expiry, snapshots."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from mmroute.engines.events import decode_changes
from mmroute.kv_events import (
    BlockIndex,
    Lost,
    Position,
    Received,
    Residency,
    Restarted,
    Source,
    WorkerRank,
)
from mmroute.kv_events.holders import MAX_SLOTS
from mmroute.kv_events.metrics import HealthCollector

SOURCE = Source("kv", 0)
BLOCKS = tuple(bytes([number]) * 32 for number in range(6))


def batch(
    *blocks: bytes, ts: float = 1.5, medium: str = "GPU", group: int = 0, rank: int = 0
) -> bytes:
    stored = {
        "type": "BlockStored", "block_hashes": list(blocks), "parent_block_hash": None,
        "token_ids": [], "block_size": 16, "lora_id": None, "medium": medium, "lora_name": None,
        "group_idx": group,
    }  # fmt: skip
    return msgspec.msgpack.encode([ts, [stored] if blocks else [], rank])


def received(number: int, *blocks: bytes, ts: float = 1.5) -> Received:
    payload = batch(*blocks, ts=ts)
    return Received(SOURCE, number, decode_changes(payload), payload)


def held(index: BlockIndex, worker: str = "w", rank: int = 0, **how: Any) -> int:
    return index.longest_prefixes(BLOCKS, **how)[WorkerRank(worker, rank)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, and the one since the epoch."""
    now = [100.0, 5000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[1])
    return now


def test_a_loss_and_a_restart_are_counted_and_forget_what_was_held() -> None:
    index = BlockIndex()
    index.apply("w", batch(*BLOCKS, rank=1))
    index.apply("w", received(0, *BLOCKS))
    index.apply("v", received(0, *BLOCKS))
    index.apply("w", Lost(SOURCE, 1, 3, "it was lost", "tcp://w:5557"))
    assert (held(index), held(index, rank=1), held(index, "v")) == (0, 0, 6)
    index.apply("w", received(4, *BLOCKS[:2]))
    assert held(index) == 2
    index.apply("w", Restarted(SOURCE))
    assert held(index) == 0
    found = index.health().workers["w"]
    assert (found.batches, found.gaps, found.lost_batches, found.restarts) == (3, 1, 3, 1)
    assert index.health().ranks == 3


def test_lag_and_silence_and_expiry(clock: list[float]) -> None:
    index = BlockIndex()
    index.apply("w", batch(*BLOCKS, ts=4998.5))
    index.apply("v", batch(*BLOCKS, ts=5000.0))
    assert index.health().workers["w"].lag == 1.5
    clock[0] = 130.0
    index.heard("v")
    assert index.expire(30.5) == []
    clock[0] = 131.0
    assert index.expire(30.5) == ["w"]
    assert list(index.longest_prefixes(BLOCKS)) == [("v", 0)]
    assert list(index.health().workers) == ["v"]


def test_metrics_tell_silence_lag_and_losses(clock: list[float]) -> None:
    index = BlockIndex()
    index.apply("w", received(0, *BLOCKS, ts=4999.0))
    index.apply("w", Lost(SOURCE, 1, 3, "it was lost", "tcp://w:5557"))
    clock[0] = 107.0
    registry = CollectorRegistry()
    registry.register(HealthCollector(index))
    lines = generate_latest(registry).decode().splitlines()
    assert {
        "mmroute_index_blocks 6.0",
        "mmroute_index_ranks 1.0",
        'mmroute_index_worker_silence_seconds{worker="w"} 7.0',
        'mmroute_index_worker_lag_seconds{worker="w"} 1.0',
        'mmroute_index_worker_batches_total{worker="w"} 1.0',
        'mmroute_index_worker_gaps_total{worker="w"} 1.0',
        'mmroute_index_worker_lost_batches_total{worker="w"} 3.0',
        'mmroute_index_worker_restarts_total{worker="w"} 0.0',
    } <= set(lines)


def test_prefixes_by_medium_and_what_one_rank_holds_where() -> None:
    index = BlockIndex()
    index.apply("w", batch(*BLOCKS[:2]))
    index.apply("w", batch(*BLOCKS[1:4], medium="CPU"))
    index.apply("w", batch(BLOCKS[3], group=1))
    index.apply("v", batch())
    assert (held(index), held(index, medium="GPU"), held(index, medium="CPU")) == (4, 2, 0)
    assert held(index, medium="DISK") == 0
    yes, no = True, False
    assert index.residencies(WorkerRank("w", 0), BLOCKS) == {
        Residency(0, "GPU", None): (yes, yes, no, no, no, no),
        Residency(0, "CPU", None): (no, yes, yes, yes, no, no),
        Residency(1, "GPU", None): (no, no, no, yes, no, no),
    }
    for unknown in (WorkerRank("v", 0), WorkerRank("u", 0)):
        assert not any(map(any, index.residencies(unknown, BLOCKS).values()))


def test_a_snapshot_has_all_that_counts() -> None:
    index = BlockIndex()
    index.apply("gone", batch(*BLOCKS))
    index.apply("w", received(6, *BLOCKS, ts=2.5))
    index.apply("w", batch(*BLOCKS[:3], medium="CPU", rank=1))
    index.apply("w", received(7, BLOCKS[0], ts=3.5))
    index.remove_worker("gone")
    other = BlockIndex.from_snapshot(index.snapshot())
    assert (
        other.longest_prefixes(BLOCKS)
        == index.longest_prefixes(BLOCKS)
        == {("w", 0): 6, ("w", 1): 3}
    )
    assert other.positions("w") == index.positions("w") == {SOURCE: Position(7, 3.5)}
    removal = {"type": "BlockRemoved", "block_hashes": [BLOCKS[0]], "medium": "GPU", "group_idx": 0}
    payload = msgspec.msgpack.encode([4.5, [removal], 0])
    other.apply("w", payload)
    assert held(other) == 6  # the second copy
    other.apply("w", payload)
    assert held(other) == 0
    other.apply("new", batch())
    assert held(other, "new") == 0
    empty = BlockIndex.from_snapshot(BlockIndex().snapshot())
    assert empty.longest_prefixes(BLOCKS) == {}


def test_what_is_no_snapshot_is_refused() -> None:
    whole = BlockIndex()
    whole.apply("w", batch(*BLOCKS))
    snapshot = whole.snapshot()
    for wrong in (b"", snapshot[:-1], b"x" * 40, snapshot.replace(b"index 1", b"index 2")):
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes are no snapshot of a BlockIndex"):
            BlockIndex.from_snapshot(wrong)


def test_ranks_have_a_limit_and_slots_are_used_again() -> None:
    index = BlockIndex()
    for number in range(MAX_SLOTS - 1):
        index.apply(f"w{number}", batch(BLOCKS[0]))
    with pytest.raises(ValueError, match="room for 4095 ranks"):
        index.apply("one more", batch(BLOCKS[0]))
    cleared = msgspec.msgpack.encode([1.5, [{"type": "AllBlocksCleared"}], 0])
    for _ in range(3):
        index.apply("w0", cleared)
        assert held(index, "w0") == 0
        index.apply("w0", batch(*BLOCKS))
        assert held(index, "w0") == 6
    assert held(index, "w1") == 1
    index.remove_worker("w1")
    index.apply("one more", batch())
    assert held(index, "one more") == 0


def test_what_is_forgotten_is_given_back_as_batches_come() -> None:
    index = BlockIndex()
    index.apply("w", batch(*(number.to_bytes(8, "big") for number in range(20_000))))
    index.apply("v", batch(*BLOCKS))
    index.remove_worker("w")
    for _ in range(200):
        index.apply("v", batch())
    assert index.health().blocks == len(BLOCKS)
