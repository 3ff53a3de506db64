"""What a lookup and a batch of events cost in the index of blocks, beside other indexes.

    python -m pytest benchmarks/test_block_index.py --benchmark-only \
        --benchmark-timer=time.process_time

A prompt of 370 blocks is looked up among 64 and 500 workers. Each worker holds 2,000 blocks of its
own. *all*: each holds the whole prompt as well. *some*: one in eight does, and each other one holds
as much of it as is drawn. *mmroute* is there where its extension is compiled (for a checkout:
python tools/native_build.py). The peers: the index that mmroute had before; llm-d's rules in Python
(llm-d-kv-cache, pkg/kvcache: a set of pods for each key, and pods dropped one by one); and, where
ai-dynamo-runtime is installed, Dynamo's `RadixTree`. Every answer that is timed is compared first.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from mmroute import ImageSize, Normalizer
from mmroute.kv_events import BlockIndex, WorkerRank, holders
from mmroute.kv_events.policy import EncoderCache, Prompt, WorkerState, pick

try:
    from dynamo._core import RadixTree
except ImportError:
    RadixTree = None

Benchmark = Any  # pytest-benchmark's fixture has no public type

BLOCKS = 370
OWN = 2000
BATCH = 100
DRAW = random.Random(0)
PROMPT = tuple(DRAW.randbytes(32) for _ in range(BLOCKS))
LOW = [int.from_bytes(block_hash[-8:], "big") >> 1 for block_hash in PROMPT]  # Dynamo's are i64


def lengths(workers: int, share: str) -> list[int]:
    """How many blocks of the prompt each worker holds."""
    draw = random.Random(workers)
    some = [BLOCKS if draw.random() < 1 / 8 else draw.randrange(BLOCKS) for _ in range(workers)]
    return [BLOCKS] * workers if share == "all" else some


class Before:
    """mmroute's index before: a counter of copies for each worker."""

    def __init__(self) -> None:
        self.caches: dict[WorkerRank, dict[Any, Counter[int]]] = {}

    def store(self, worker: int, hashes: Sequence[bytes]) -> None:
        cache = self.caches.setdefault(WorkerRank(f"w{worker}", 0), {(0, "GPU", None): Counter()})
        cache[0, "GPU", None].update(int.from_bytes(h[-8:], "big") for h in hashes)

    def remove(self, worker: int, hashes: Sequence[bytes]) -> None:
        copies = self.caches[WorkerRank(f"w{worker}", 0)][0, "GPU", None]
        for low in (int.from_bytes(h[-8:], "big") for h in hashes):
            left = copies.get(low, 0) - 1
            if left > 0:
                copies[low] = left
            else:
                copies.pop(low, None)

    def find(self) -> dict[Any, int]:
        found = dict.fromkeys(self.caches, 0)
        matching = list(self.caches.items())
        for length, block_hash in enumerate(PROMPT, start=1):
            low = int.from_bytes(block_hash[-8:], "big")
            matching = [
                (rank, cache)
                for rank, cache in matching
                if any(low in copies for copies in cache.values())
            ]
            if not matching:
                break
            for rank, _ in matching:
                found[rank] = length
        return found


class LlmD:
    """llm-d's rules: pods by key, and the pods of each key intersected with those before."""

    def __init__(self) -> None:
        self.pods: dict[int, dict[str, None]] = {}

    def store(self, worker: int, hashes: Sequence[bytes]) -> None:
        for block_hash in hashes:
            self.pods.setdefault(int.from_bytes(block_hash[-8:], "big"), {})[f"w{worker}"] = None

    def remove(self, worker: int, hashes: Sequence[bytes]) -> None:
        for block_hash in hashes:
            low = int.from_bytes(block_hash[-8:], "big")
            self.pods[low].pop(f"w{worker}", None)
            if not self.pods[low]:
                del self.pods[low]

    def find(self) -> dict[Any, int]:
        keys = [int.from_bytes(block_hash[-8:], "big") for block_hash in PROMPT]
        pods = {key: list(self.pods[key]) for key in keys if key in self.pods}
        active = set(pods.get(keys[0], ()))
        found = dict.fromkeys(active, 1)
        for key in keys[1:]:
            if not active:
                break
            active &= set(pods.get(key, ()))
            for pod in active:
                found[pod] += 1
        return found


class Ours:
    def __init__(self, *, by_content: bool = False) -> None:
        self.index = BlockIndex(by_content=by_content)

    def store(self, worker: int, hashes: Sequence[bytes]) -> None:
        self.index.apply(f"w{worker}", payload("BlockStored", hashes))

    def remove(self, worker: int, hashes: Sequence[bytes]) -> None:
        self.index.apply(f"w{worker}", payload("BlockRemoved", hashes))

    def find(self) -> dict[Any, int]:
        return dict(self.index.longest_prefixes(PROMPT))


class Dynamo:
    def __init__(self) -> None:
        self.tree = RadixTree()
        self.low = [int.from_bytes(h[-8:], "big") >> 1 for h in PROMPT]

    def store(self, worker: int, hashes: Sequence[bytes]) -> None:
        self.tree.apply_event(worker, router_event("stored", hashes))

    def remove(self, worker: int, hashes: Sequence[bytes]) -> None:
        self.tree.apply_event(worker, router_event("removed", hashes))

    def find(self) -> dict[Any, int]:
        scores: dict[Any, int] = self.tree.find_matches(self.low).scores
        return scores


def tokens(hashes: Sequence[bytes]) -> list[int]:
    """Sixteen token IDs for each hash, of one to three bytes in msgpack."""
    ids: list[int] = np.frombuffer(b"".join(hashes), "<u2").tolist()
    return ids


def payload(kind: str, hashes: Sequence[bytes]) -> bytes:
    """A batch as vLLM publishes it by default: integers, with the tokens of its blocks."""
    event: dict[str, Any] = {
        "type": kind,
        "block_hashes": [int.from_bytes(h[-8:], "big") for h in hashes],
        "medium": "GPU",
        "group_idx": 0,
    }
    if kind == "BlockStored":
        event |= {
            "parent_block_hash": None, "token_ids": tokens(hashes), "block_size": 16,
            "lora_id": None, "lora_name": None,
            "extra_keys": [None] * len(hashes),
        }  # fmt: skip
    return msgspec.msgpack.encode([1.5, [event], 0])


def page_payload(kind: str, hashes: Sequence[bytes]) -> bytes:
    """The same as SGLang publishes it: signed integers, and no field that is None."""
    event: dict[str, Any] = {
        "type": kind,
        "block_hashes": [int.from_bytes(h[:8], "big", signed=True) for h in hashes],
        "medium": "GPU",
    }
    if kind == "BlockStored":
        event |= {
            "parent_block_hash": None, "token_ids": tokens(hashes), "block_size": 16,
            "lora_id": None,
        }  # fmt: skip
    return msgspec.msgpack.encode([1.5, [event], 0])


def router_event(kind: str, hashes: Sequence[bytes]) -> bytes:
    """Dynamo's event: it has no tokens, and its own hashes in the place of the engine's."""
    low = [int.from_bytes(h[-8:], "big") >> 1 for h in hashes]
    if kind == "stored":
        blocks = [{"block_hash": h, "tokens_hash": h, "mm_extra_info": None} for h in low]
        data: dict[str, Any] = {"stored": {"parent_hash": None, "blocks": blocks}}
    else:
        data = {"removed": {"block_hashes": low}}
    return json.dumps({"event_id": 0, "data": data, "dp_rank": 0}).encode()


MODELS = ["pixtral-12b-2409"]
if "MMROUTE_MODELS" in os.environ:
    MODELS.append(f"{os.environ['MMROUTE_MODELS']}/qwen2.5-vl-3b-instruct")

INDEXES: dict[str, Callable[[], Any]] = {
    "mmroute in Python": Ours, "mmroute before": Before, "llm-d's rules": LlmD,
}  # fmt: skip
if holders.compiled():
    INDEXES["mmroute"] = Ours
if RadixTree is not None:
    INDEXES["Dynamo"] = Dynamo


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "mmroute in Python":
        monkeypatch.setattr(holders, "compiled", lambda: False)
    return INDEXES[request.param]()


@pytest.mark.parametrize("share", ["all", "some"])
@pytest.mark.parametrize("workers", [64, 500])
def test_lookup(benchmark: Benchmark, index: Any, workers: int, share: str) -> None:
    expected = lengths(workers, share)
    for worker, length in enumerate(expected):
        index.store(worker, [DRAW.randbytes(32) for _ in range(OWN)])
        index.store(worker, PROMPT[:length])
    found = benchmark(index.find)
    by_worker = {name_of(key): length for key, length in found.items()}
    assert [by_worker.get(f"w{worker}", 0) for worker in range(workers)] == expected


def name_of(key: Any) -> str:
    """Of a worker, whatever the index calls it."""
    return key if isinstance(key, str) else key[0] if isinstance(key[0], str) else f"w{key[0]}"


APPLIED = ["mmroute", "mmroute by content", "mmroute, of SGLang", "Dynamo"]


@pytest.mark.parametrize("kind", APPLIED)
def test_apply(benchmark: Benchmark, kind: str) -> None:
    """100 batches that store 100 blocks each, and 100 that remove them, as they are received."""
    if kind == "Dynamo" and RadixTree is None:
        pytest.skip("ai-dynamo-runtime is not installed")
    by_content = kind == "mmroute by content"
    index: Any = Dynamo() if kind == "Dynamo" else Ours(by_content=by_content)
    batches = [[DRAW.randbytes(32) for _ in range(BATCH)] for _ in range(100)]
    if kind != "Dynamo":
        encode = page_payload if kind == "mmroute, of SGLang" else payload
        received = [encode(event, b) for event in ("BlockStored", "BlockRemoved") for b in batches]
        apply = index.index.apply
        benchmark(lambda: [apply("w", message) for message in received])
        assert index.index.health().blocks == 0
    else:
        received = [router_event(event, b) for event in ("stored", "removed") for b in batches]
        apply = index.tree.apply_event
        benchmark(lambda: [apply(0, message) for message in received])
        assert index.tree.dump_tree_as_events() == []


@pytest.mark.parametrize("blocks", [100_000, 150_000, 200_000, 300_000])
def test_memory(benchmark: Benchmark, blocks: int) -> None:
    """The bytes of each block that one worker holds, and by content at most half as much again."""
    sizes = {}
    for by_content in (False, True):
        index = Ours(by_content=by_content)
        for _ in range(blocks // BATCH):
            index.store(0, [DRAW.randbytes(32) for _ in range(BATCH)])
        sizes[by_content] = index.index.health().bytes / blocks
    benchmark.extra_info |= {"by hashes": sizes[False], "by content": sizes[True]}
    benchmark(index.index.health)
    assert sizes[True] < 1.5 * sizes[False], sizes


@pytest.mark.parametrize("model", MODELS)
def test_decision(benchmark: Benchmark, model: str) -> None:
    """A request with a new picture and 1,000 words: its hashes, 64 workers, and the one to take."""
    normalizer = Normalizer.from_pretrained(model, model_id="m")
    normalizer.stats()  # its encoder is ready
    index, numbers = BlockIndex(), iter(range(10**9))
    names = [f"w{worker}" for worker in range(64)]
    encoders = {name: EncoderCache(8192) for name in names}
    words = ["word", "picture", "house", "seven", "light"]

    def ask() -> tuple[list[Any], list[ImageSize]]:
        text = " ".join(DRAW.choices(words, k=1000))
        content = [{"type": "image"}, {"type": "text", "text": text}]
        image = ImageSize(1280, 720, uuid=str(next(numbers)))
        return [{"role": "user", "content": content}], [image]

    def decide(messages: list[Any], images: list[ImageSize]) -> str:
        routing = normalizer.normalize(messages=messages, images=images)
        hashes = routing.block_hashes(block_size=16)
        held = index.longest_prefixes(hashes)
        at_hand = index.longest_prefixes(hashes, medium="GPU")
        ranks = ((name, WorkerRank(name, 0)) for name in names)
        states = {n: WorkerState(held[r], at_hand[r], 0, encoders[n]) for n, r in ranks}
        return pick(Prompt.of(routing, 16), states).worker

    for name in names:
        index.apply(name, payload("BlockStored", [DRAW.randbytes(32) for _ in range(OWN)]))
    messages, images = ask()
    hashes = normalizer.normalize(messages=messages, images=images).block_hashes(block_size=16)
    index.apply("w17", payload("BlockStored", hashes))
    assert decide(messages, images) == "w17"
    found = benchmark.pedantic(decide, setup=lambda: (ask(), {}), rounds=200)
    assert found == "w0"  # a new picture: all cost the same
