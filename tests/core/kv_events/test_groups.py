"""How much an engine reuses whose layers keep different blocks, against vLLM's own coordinator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mmroute.kv_events import (
    BlockIndex,
    BlockStored,
    EventBatch,
    Lost,
    Restarted,
    Source,
    WorkerRank,
)
from mmroute.kv_events.groups import Group, hash_size, reused_tokens

CASES = json.loads((Path(__file__).parent / "reuse.json").read_text(encoding="utf-8"))["cases"]
MODELS = sorted({case["model"] for case in CASES})


def groups_of(case: dict[str, Any]) -> list[Group]:
    return [Group(*group) for group in case["groups"]]


@pytest.mark.parametrize("model", MODELS)
def test_as_much_is_reused_as_the_engine_finds(model: str) -> None:
    for case in (case for case in CASES if case["model"] == model):
        groups, size = groups_of(case), case["block_size"]
        rows = [np.array([one], bool) for one in case["held"]]
        held = list(zip(groups, rows, strict=True))
        assert hash_size(groups) == size
        found = reused_tokens(held, num_tokens=case["num_tokens"], block_size=size)
        assert found is not None
        assert found.tolist() == [case["reused"]], case


def announced(case: dict[str, Any], *groups: int) -> EventBatch:
    """What an engine says that has these blocks; a block is numbered as its hash."""
    events = []
    for number in groups or range(len(case["groups"])):
        kind, size, window = case["groups"][number]
        hashes = tuple(at for at, held in enumerate(case["held"][number]) if held)
        events.append(
            BlockStored(
                hashes, None, (), size, None, "GPU", None,
                group_idx=number, kv_cache_spec_kind=kind, kv_cache_spec_sliding_window=window,
            )
        )  # fmt: skip
    return EventBatch(1.5, tuple(events))


def asked(index: BlockIndex, case: dict[str, Any]) -> dict[WorkerRank, int | None]:
    hashes = range(len(case["held"][0]))
    return index.reused_tokens(hashes, num_tokens=case["num_tokens"], block_size=case["block_size"])


def test_an_index_of_many_workers_tells_what_each_reuses() -> None:
    index = BlockIndex()
    assert index.block_size("nobody") is None
    cases = [case for case in CASES if all(map(any, case["held"]))][::6]
    for number, case in enumerate(cases):
        payload = msgspec.msgpack.encode(announced(case))
        index.apply(f"worker-{number}", payload)
    both = index, BlockIndex.from_snapshot(index.snapshot())
    for number, case in enumerate(cases):
        rank = WorkerRank(f"worker-{number}", 0)
        for each in both:
            assert asked(each, case)[rank] == case["reused"], case
            assert each.block_size(rank.worker) == case["block_size"]


GEMMA = next(case for case in CASES if case["model"] == "Gemma-4" and all(map(any, case["held"])))


def test_a_group_that_has_announced_nothing_yet_is_waited_for() -> None:
    index = BlockIndex()
    index.apply("w", announced(GEMMA, 1))
    assert asked(index, GEMMA) == {WorkerRank("w", 0): None}
    index.apply("w", announced(GEMMA, 0))
    assert asked(index, GEMMA) == {WorkerRank("w", 0): GEMMA["reused"]}


def test_parts_of_blocks_tell_the_size_of_hashes() -> None:
    states = Group("mamba", 160, None)
    for sizes in ((160, 32), (32, 160)):
        group = Group("mamba", sizes[0], None).with_size(sizes[0]).with_size(sizes[1])
        assert group == Group("mamba", 160, None, part=32)
        assert hash_size([Group("full_attention", 160, None), group]) == 32
        held = np.ones((1, 8), bool)
        assert reused_tokens([(group, held)], num_tokens=99, block_size=32) is None
    assert hash_size([states.with_size(96).with_size(64)]) == 32


def test_parts_of_other_blocks_are_not_reused() -> None:
    full, held = Group("full_attention", 64, None, part=32), np.array([[False, True, True]])
    found = reused_tokens([(full, held)], num_tokens=99, block_size=32)
    assert found is not None
    assert found.tolist() == [64]


def test_blocks_elsewhere_tell_nothing_of_the_groups() -> None:
    index = BlockIndex()
    stored = announced(GEMMA).events[0]
    assert isinstance(stored, BlockStored)
    index.apply("w", EventBatch(1.5, (msgspec.structs.replace(stored, medium="CPU"),)))
    assert index.block_size("w") is None


def test_a_new_process_may_have_other_blocks() -> None:
    index = BlockIndex()
    index.apply("w", announced(GEMMA))
    index.apply("w", Lost(Source("", 0), 1, 2, "no replay", "tcp://w:5557"))
    assert index.block_size("w") == 16
    index.apply("w", Restarted(Source("", 0)))
    assert index.block_size("w") is None


@pytest.mark.parametrize(
    "group",
    [
        Group("chunked_local_attention", 16, None),
        Group("unknown", 16, None),
        Group(None, 16, None),
        Group("mamba", 32, None),
        Group("full_attention", 24, None),
    ],
)
def test_what_does_not_follow_is_not_told(group: Group) -> None:
    held = np.ones((1, 8), bool)
    full = Group("full_attention", 16, None)
    assert reused_tokens([(full, held), (group, held)], num_tokens=99, block_size=16) is None
    assert reused_tokens([], num_tokens=99, block_size=16) is None
