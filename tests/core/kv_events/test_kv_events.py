"""KV events: what vLLM sends is read, nothing else is, and the index holds what the workers do."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import paths
import pytest
from comparison import read_vectors
from generate_pools import facts

from mmroute import EventsError, Reason
from mmroute.kv_events import (
    BlockIndex,
    WorkerRank,
    decode_events,
)

META, VECTORS = read_vectors(paths.VECTORS / "kv_events" / "batches.jsonl")
POOL_STREAMS = sorted({case["stream"] for case in VECTORS if "stream" in case})
HASHES = [bytes([i]) * 24 + bytes([255 - i]) * 8 for i in range(12)]

Json = dict[str, Any]


def stored(*hashes: bytes | int, **fields: Any) -> Json:
    """A BlockStored as vLLM encodes it: no default is written, the others always are."""
    always: Json = {
        "parent_block_hash": None, "token_ids": [], "block_size": 16, "lora_id": None,
        "medium": "GPU", "lora_name": None,
    }  # fmt: skip
    return {"type": "BlockStored", "block_hashes": list(hashes), **always, **fields}


def removed(*hashes: bytes | int, medium: str | None = "GPU", **fields: Any) -> Json:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": medium, **fields}


def without(event: Json, *names: str) -> Json:
    return {name: value for name, value in event.items() if name not in names}


CLEARED: Json = {"type": "AllBlocksCleared"}


def payload(*events: Json, rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), *([] if rank is None else [rank])])


def held(index: BlockIndex, *hashes: bytes, worker: str = "w", rank: int = 0) -> int:
    return index.longest_prefixes(hashes)[WorkerRank(worker, rank)]


# --- decoding -------------------------------------------------------------------------------


def test_vectors_are_of_the_version_the_module_names() -> None:
    assert META["backend_version"] == "0.33.0"
    assert POOL_STREAMS == ["bytes", "ints"]


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["id"])
def test_decodes_as_vllm_does(case: Json) -> None:
    batch = decode_events(bytes.fromhex(case["payload"]))
    assert {**facts(batch), "type": "KVEventBatch"} == case["expect"]


def test_unknown_fields_are_ignored() -> None:
    later = msgspec.msgpack.encode([1.5, [stored(1, new={"a": [1]}), {**CLEARED, "m": 1}], 0, "x"])
    assert decode_events(later) == decode_events(payload(stored(1), CLEARED))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "truncated"),
        (b"\xc1", "invalid opcode"),
        (b"hello", "Expected `array`, got `int`"),
        (payload(CLEARED) + b"\x00", "trailing"),
        (msgspec.msgpack.encode([1.5]), "at least length 2, got 1"),
        (payload({"type": "BlockMoved"}), "Invalid value 'BlockMoved' - at `$[1][0].type`"),
        (payload({"type": "x" * 10_000}), "Invalid value 'xxx"),
        (payload({"block_hashes": []}), "`type`"),
        (payload({"type": "BlockStored"}), "missing required field"),
        (payload(stored(-1)), "Expected `int` >= 0 - at `$[1][0].block_hashes[0]`"),
        (payload(removed(-1, group_idx=0), stored(1)), "Expected `int` >= 0"),
        (payload(removed(-1, b"#")), "Expected `int` >= 0"),
        (payload(without(stored(b"#"), "lora_name")), "missing required field `lora_name`"),
        (payload(without(stored(1 << 63), "lora_name")), "missing required field `lora_name`"),
        (payload(removed("text")), "Expected `int | bytes`, got `str`"),  # type: ignore[arg-type]
        (payload(CLEARED, rank="zero"), "Expected `int | null`, got `str`"),  # type: ignore[arg-type]
        (
            payload(stored(1, later=b"#")).replace(b"\xc4\x01#", b"\x91" * 999_999 + b"\xc0"),
            "while deserializing an object",
        ),
        (payload(stored(b"#")).replace(b"\xc4\x01#", b"\xc6\xff\xff\xff\xff#"), "truncated"),
    ],
)
def test_malformed_payloads_say_what_was_found(data: bytes, found: str) -> None:
    with pytest.raises(EventsError, match="bytes are no KV event batch of vllm") as raised:
        decode_events(data)
    assert raised.value.reason is Reason.MALFORMED_EVENTS
    assert found in str(raised.value)
    assert len(str(raised.value)) <= 300


@pytest.mark.parametrize("claim", [b"\xdd\x80\x00\x00\x00", b"\xdd\xff\xff\xff\xff"])
@pytest.mark.parametrize("field", ["block_hashes", "token_ids", "extra_keys", "later"])
def test_a_claimed_length_is_not_believed(claim: bytes, field: str) -> None:
    """Not once, and not nested with a million bytes to follow, which each level could claim."""
    decode_events(payload(stored(1)))  # or the first one would load the decoders
    whole = payload({**stored(1), field: b"#"})
    for value in (claim, claim * 200 + b"\xc0" * 1_000_000):
        data = whole.replace(b"\xc4\x01#", value)
        tracemalloc.start()
        with pytest.raises(EventsError, match="no KV event batch"):
            decode_events(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * len(data) + 100_000


def only_our_error(data: bytes) -> None:
    index = BlockIndex()
    index.apply("w", payload(stored(*HASHES)))
    before = index.longest_prefixes(HASHES)
    try:
        index.apply("w", data)
    except EventsError:
        assert index.longest_prefixes(HASHES) == before, "a part of the batch was entered"


REAL = [bytes.fromhex(case["payload"]) for case in VECTORS]


def test_mutated_payloads() -> None:
    draw = random.Random(2)
    for _ in range(300):
        mutated = bytearray(draw.choice(REAL))
        for _ in range(draw.randint(1, 4)):
            start = draw.randint(0, len(mutated))
            mutated[start : start + draw.randint(0, 4)] = draw.randbytes(draw.randint(0, 6))
        only_our_error(bytes(mutated))


# --- the index ------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", POOL_STREAMS)
def test_index_holds_what_the_block_pool_does(stream: str) -> None:
    """After every batch of a real block pool, which keeps two copies of a shared prefix."""
    index = BlockIndex()
    for case in VECTORS:
        if case.get("stream") != stream:
            continue
        index.apply("w", bytes.fromhex(case["payload"]))
        for prefix in case["prefixes"]:
            hashes = [bytes.fromhex(block_hash) for block_hash in prefix["hashes"]]
            assert held(index, *hashes) == prefix["length"], (case["id"], json.dumps(prefix))


def test_a_block_is_gone_when_every_copy_is() -> None:
    """In each medium, group and tier."""
    block = HASHES[0]
    copies: list[tuple[Json, Json]] = [
        (stored(block, medium=medium, **fields), removed(block, medium=medium, **fields))
        for medium in ("GPU", "CPU", None)
        for fields in ({}, {"group_idx": 0}, {"group_idx": 1}, {"ownership": "tier"})
    ] * 2
    index = BlockIndex()
    index.apply("w", payload(*(store for store, _ in copies)))
    for _, removal in copies:
        assert held(index, block) == 1
        index.apply("w", payload(removal))
    assert held(index, block) == 0
    assert index.health().blocks == 0


@pytest.mark.parametrize(
    "other",
    [
        {"medium": "CPU"},
        {"medium": None},
        {"group_idx": 1},
        {"group_idx": None},
        {"ownership": "t"},
    ],
    ids=str,
)
def test_a_removal_takes_only_the_copy_it_names(other: Json) -> None:
    index = BlockIndex()
    named: Json = {"medium": "GPU", "group_idx": 0}
    removal = removed(HASHES[0], **(named | other))
    index.apply("w", payload(removal, removal, stored(*HASHES[:2], **named), removal))
    assert held(index, *HASHES) == 2


def test_the_index_may_be_shared_between_threads() -> None:
    index = BlockIndex()
    index.apply("stays", payload(stored(*HASHES)))

    def churn(number: int) -> None:
        for _ in range(200):
            index.apply(f"w{number}", payload(stored(*HASHES)))
            index.apply(f"w{number}", payload(removed(*HASHES[1:])))
            prefixes = index.longest_prefixes(HASHES)
            assert prefixes[WorkerRank("stays", 0)] == len(HASHES)
            assert prefixes[WorkerRank(f"w{number}", 0)] == 1
            index.remove_worker(f"w{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(churn, range(8)))
    assert list(index.longest_prefixes(HASHES)) == [("stays", 0)]


ACTIONS = ["stored"] * 5 + ["removed"] * 5 + ["cleared", "remove_worker"]


def test_agrees_with_a_bag_of_copies() -> None:
    """The model is one bag of (worker, rank, medium, group, hash), asked block by block."""
    for seed in range(100):
        check_with_a_bag(random.Random(seed))


def check_with_a_bag(draw: random.Random) -> None:
    index = BlockIndex()
    model: Counter[tuple[Any, ...]] = Counter()
    known: dict[tuple[str, int], None] = {}
    for _ in range(draw.randint(10, 40)):
        worker, rank, action = draw.choice("ab"), draw.choice([None, 0, 1]), draw.choice(ACTIONS)
        blocks = draw.choices(HASHES[:4], k=draw.randint(1, 4))
        medium, group = draw.choice(["GPU", "CPU", None]), draw.choice([None, 0, 1])
        cache = (worker, rank or 0)
        if action == "remove_worker":
            index.remove_worker(worker)
            known = {key: None for key in known if key[0] != worker}
            model = Counter({key: n for key, n in model.items() if key[0] != worker})
            continue
        known[cache] = None
        integers = draw.random() < 0.5
        named = [int.from_bytes(b[-8:], "big") if integers else b for b in blocks]
        if action == "stored":
            event = stored(*named, medium=medium, group_idx=group)
            model.update((*cache, medium, group, block) for block in blocks)
        elif action == "removed":
            event = removed(*named, medium=medium, group_idx=group)
            model.subtract((*cache, medium, group, block) for block in blocks)
            model = +model
        else:
            event = CLEARED
            model = Counter({key: n for key, n in model.items() if key[:2] != cache})
        index.apply(worker, payload(event, rank=rank))
    expected = {}
    for cache in known:
        mine = {key[4] for key in model if key[:2] == cache}
        expected[cache] = next((i for i, block in enumerate(HASHES) if block not in mine), -1)
    prefixes = index.longest_prefixes(HASHES)
    assert prefixes == expected
    assert list(prefixes) == list(known)
    assert index.longest_prefixes([]) == dict.fromkeys(known, 0)
    dumps = (table.dump(index._ranks.packed()) for table in index._tables.values())
    copies = [n for dump in dumps for _, _, n in struct.iter_unpack("<QHI", dump)]
    assert (len(copies), sum(copies)) == (len(model), model.total())
