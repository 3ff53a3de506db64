"""Keys by content: one form for all engines' events, and an index that needs no engine's hashes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from comparison import read_vectors
from hypothesis import given
from paths import VECTORS

from mmroute import Normalizer
from mmroute.engines.events import decode_changes
from mmroute.hashing import chain
from mmroute.hashing.content import content_keys, encode
from mmroute.kv_events import BlockIndex, BlockStored, EventBatch, WorkerRank, decode_events
from mmroute.kv_events.holders import low_bits
from mmroute.requests.lines import request_of

POOLS = json.loads((Path(__file__).parent / "pool_streams.json").read_text(encoding="utf-8"))
PROMPTS = [[bytes.fromhex(digits) for digits in prompt] for prompt in POOLS["prompts"]]
PROCESSES = [
    [(base64.b64decode(batch["payload"]), batch["held"]) for batch in stream]
    for stream in POOLS["streams"]
]
RANK = WorkerRank("w", 0)
MODEL = "small-qwen2.5-vl"
VLLM, SGLANG = "vllm", "sglang"
texts = st.text(min_size=1, max_size=3)
block_keys = st.none() | st.lists(
    texts | st.tuples(texts, st.integers(-99, 99)), min_size=1, max_size=3
).map(tuple)


def stored(engine: str, ids: list[Any], **fields: Any) -> bytes:
    """A batch with one event, of blocks of two tokens, as an engine's encoder writes it."""
    count = len(ids) // 2
    event = {
        "type": "BlockStored", "block_hashes": list(range(1, count + 1)),
        "parent_block_hash": None, "token_ids": ids, "block_size": 2, "lora_id": None,
        "medium": "GPU",
    }  # fmt: skip
    if engine == VLLM:
        event |= {"lora_name": None, "extra_keys": [None] * count}
    return msgspec.msgpack.encode([1.5, [event | fields], 0])


def keys_of(payload: bytes | EventBatch) -> tuple[int, ...] | None:
    """The keys of the only event of a batch."""
    batch = decode_changes(payload) if isinstance(payload, bytes) else payload
    contents = batch.events[0].contents()  # type: ignore[union-attr]
    return contents and contents.keys(2)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=20).map(lambda ids: ids * 2))
def test_text_has_the_same_keys_in_the_events_of_all_engines(ids: list[int]) -> None:
    blocks: list[Any] = [*range(len(ids) // 2)]
    rows = [["BlockStored", blocks, None, ids, 2, None, "GPU", None, [None] * len(blocks)]]
    array = msgspec.msgpack.encode([1.5, rows, 0])
    expected = content_keys(np.array(ids, np.uint32), 2)
    of_engines = stored(VLLM, ids), stored(SGLANG, ids), array
    assert [keys_of(payload) for payload in of_engines] == [expected] * 3
    assert keys_of(decode_events(array)) == keys_of(decode_events(of_engines[0])) == expected


@given(st.lists(block_keys, min_size=1, max_size=5), st.none() | texts)
def test_keys_of_a_changes_batch_are_those_of_the_whole_event(keys: list[Any], lora: Any) -> None:
    ids = list(range(2 * len(keys)))
    payload = stored(VLLM, ids, extra_keys=keys, lora_name=lora, lora_id=lora and 1)
    found = keys_of(payload)
    assert found == keys_of(decode_events(payload))
    plain = keys_of(stored(VLLM, ids))
    assert found is not None
    assert (found == plain) == (lora is None and not any(keys))


WIDE = np.array([1, 2, 3, 2**40, 5, 6, 7, 8])


def test_wide_ids_have_keys_and_narrow_ones_those_of_any_type() -> None:
    whole = content_keys(WIDE, 2, extra={3: b"x"})
    assert content_keys(WIDE[4:], 2, extra={1: b"x"}, parent=whole[1]) == whole[2:]
    assert content_keys(WIDE[:2].astype(np.uint32), 2) == whole[:1]
    assert len({*whole, *content_keys(WIDE, 2)}) == 5


@given(st.integers(0, 9), st.none() | st.integers(0, 2**64 - 1), st.integers(1, 3))
def test_the_extension_makes_the_keys_of_python(count: int, parent: int | None, size: int) -> None:
    ids = np.arange(count * size, dtype=np.uint32) << 8
    extra = dict.fromkeys(range(0, count, 2), b"keys")
    by_python = content_keys(np.append(ids, WIDE[:size] + 2**33), size, extra=extra, parent=parent)
    assert content_keys(ids, size, extra=extra, parent=parent) == by_python[:-1]


numbers = st.sampled_from([0, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**32 - 1])


@given(st.lists(numbers, max_size=30), st.sampled_from([[], [2**32], [2**63 - 1]]))
def test_numbers_are_unpacked(ids: list[int], more: list[int]) -> None:
    assert chain.unpack_ids(msgspec.msgpack.encode(ids + more)).tolist() == ids + more


@pytest.mark.parametrize("other", [[None], [-1], [1.5], ["a"], [True], {"a": 1}, [2**64 - 1]])
def test_what_is_no_array_of_numbers_is_refused(other: Any) -> None:
    for cut in (msgspec.msgpack.encode(other), msgspec.msgpack.encode([1, 2, 700])[:-1], b""):
        with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own
            chain.unpack_ids(cut)


def test_pairs_of_sglang_cover_the_token_behind_a_page() -> None:
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    other = [*pairs[:3], [4, 6]]
    first, second = keys_of(stored(SGLANG, pairs)), keys_of(stored(SGLANG, other))
    assert first
    assert second
    assert first[0] == second[0]
    assert first[1] != second[1]


HIDING: dict[str, bytes | EventBatch] = {
    "vLLM before 0.17": stored(VLLM, [1, 2], extra_keys=None),
    "an adapter without a name": stored(VLLM, [1, 2], lora_id=1),
    "a page of such an adapter": stored(SGLANG, [1, 2], lora_id=1),
    "no tokens": stored(VLLM, []),
    "no parent that is known": stored(VLLM, [1, 2], parent_block_hash=99),
    "malformed tokens": stored(VLLM, [1, 2], token_ids=["a", "b"]),
    "tokens of more than 64 bits with a sign": EventBatch(
        1.5, (BlockStored((1,), None, (1, 2**63), 2, None, "GPU", None, extra_keys=(None,)),)
    ),
    "keys of no block": stored(VLLM, [1, 2], extra_keys=[None, ["a"]]),
    "keys of no block, all read": decode_events(stored(VLLM, [1, 2], extra_keys=[None, ["a"]])),
    "a block without keys": stored(VLLM, [1, 2, 3, 4], extra_keys=[None]),
    "an empty salt": stored(VLLM, [1, 2], extra_keys=[[""]]),
}


@pytest.mark.parametrize("what", HIDING)
def test_blocks_that_an_event_does_not_tell_whole_are_not_credited(what: str) -> None:
    index = BlockIndex(by_content=True)
    index.apply("w", HIDING[what])
    assert index.health().blocks == int(what == "an empty salt")  # which has a key of its own
    assert index.longest_prefixes(content_keys(np.array([1, 2]), 2)) == {RANK: 0}


def test_a_block_that_was_cleared_in_the_same_batch_is_not_held() -> None:
    """Its event does not tell its tokens, which another worker's event of the same hash does."""
    index = BlockIndex(by_content=True)
    index.apply("other", stored(VLLM, [1, 2]))
    batch = msgspec.msgpack.decode(stored(VLLM, [1, 2], extra_keys=None))
    index.apply("w", msgspec.msgpack.encode(batch))
    keys = content_keys(np.array([1, 2]), 2)
    assert index.longest_prefixes(keys) == {WorkerRank("other", 0): 1, RANK: 1}
    batch[1].append({"type": "AllBlocksCleared"})
    index.apply("w", msgspec.msgpack.encode(batch))
    assert index.longest_prefixes(keys) == {WorkerRank("other", 0): 1, RANK: 0}


def prompts_by_content() -> list[list[int]]:
    """The prompts of the recorded pools, whose blocks are known there by their hashes."""
    keys: dict[int, int] = {}
    for process in PROCESSES:
        for payload, _ in process:
            for event in decode_events(payload).events:
                if isinstance(event, BlockStored) and (contents := event.contents()):
                    parent = event.parent_block_hash
                    before = None if parent is None else keys.get(low_bits(parent))
                    found = contents.keys(event.block_size, before)
                    whole = len(found) == len(event.block_hashes)  # no block is left out
                    if whole and (parent is None or before is not None):
                        keys.update(zip(map(low_bits, event.block_hashes), found, strict=True))
    return [[keys[low_bits(digest)] for digest in prompt] for prompt in PROMPTS]


@pytest.mark.parametrize("process", range(len(PROCESSES)))
def test_the_index_agrees_with_vllms_pool(process: int) -> None:
    """Nothing is credited in error; of layers that keep all blocks, all that is held is."""
    index, full = BlockIndex(by_content=True), BlockIndex(by_content=True)
    by_hashes = BlockIndex()
    prompts = prompts_by_content()
    for payload, held in PROCESSES[process]:
        index.apply("w", payload)
        found = [index.longest_prefixes(keys)[RANK] for keys in prompts]
        assert all(n <= most for n, most in zip(found, held, strict=True))
        batch = decode_events(payload)
        events = tuple(e for e in batch.events if getattr(e, "group_idx", 0) == 0)
        for one in (full, by_hashes):
            one.apply("w", msgspec.msgpack.encode(EventBatch(batch.ts, events, 0)))
        for keys, hashes in zip(prompts, PROMPTS, strict=True):
            assert full.longest_prefixes(keys) == by_hashes.longest_prefixes(hashes)
    assert full.health().blocks == by_hashes.health().blocks > 0


@pytest.mark.parametrize(
    "setting", ["algorithm and seed", "block size", "defaults", "hash algorithm", "seed"]
)
def test_prompts_are_found_by_content_whatever_an_engine_hashes_by(
    setting: str, small_model: Callable[[str], Path]
) -> None:
    normalizer = Normalizer.from_pretrained(small_model(MODEL), model_id=MODEL)
    index, found = BlockIndex(by_content=True), 0
    for case in read_vectors(VECTORS / "settings" / f"{MODEL}.jsonl")[1]:
        if case["setting"] != setting:
            continue
        for payload in case["events"]:
            index.apply("w", base64.b64decode(payload))
        routing = normalizer.answer(request_of(case["request"]))
        if "refused" not in case and routing.exact:
            keys = routing.content_keys(index.block_size("w"))
            assert index.longest_prefixes(keys) == {RANK: len(keys)}
            found += len(keys)
    assert found > 3


def test_sglangs_pages_are_found_by_content() -> None:
    index, by_hashes = BlockIndex(by_content=True), BlockIndex()
    for case in read_vectors(VECTORS / "kv_events" / "sglang.jsonl")[1]:
        if "stream" in case:
            for one in (index, by_hashes):
                one.apply(case["stream"], bytes.fromhex(case["payload"]))
        assert index.health().blocks == by_hashes.health().blocks
    prompt = stored(SGLANG, [1, 2, 3, 4], cache_salt="salt")
    index.apply("w", prompt)
    keys = content_keys(np.array([1, 2, 3, 4]), 2, extra={0: encode(("salt",))})
    assert index.longest_prefixes(keys)[RANK] == 2


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_an_index_by_content_refuses_the_hashes_of_an_engine(
    small_model: Callable[[str], Path], backend: str
) -> None:
    loaded = Normalizer.from_pretrained(small_model(MODEL), model_id="m", backend=backend)
    routing = loaded.normalize(prompt_token_ids=list(range(40)))
    hashes = routing.page_hashes(16) if backend == SGLANG else routing.block_hashes(block_size=16)
    index = BlockIndex(by_content=True)
    for given_hashes in (hashes, list(hashes)):
        with pytest.raises(ValueError, match="content_keys"):
            index.longest_prefixes(given_hashes)
