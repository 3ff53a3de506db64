"""Ask vLLM's own block pool and cache coordinator what they publish, hold, evict and find.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_pools.py

It writes, of requests and lives of a pool that are drawn with a seed or listed here,

    vectors/kv_events/batches.jsonl      payloads of its own encoder, and what its decoder finds
    tests/core/kv_events/pool_streams.json  lives of processes, and what is held
    tests/core/kv_events/reuse.json      groups, the blocks that are held, and the longest hit
    tests/lab/traces/block_pools.json    what was cached of requests, and the order of eviction
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import base64
import json
import math
import os
import random
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from engine import ENGINE_VERSION, refuse_other_versions
from vector_files import TESTS, VECTORS, take_no_arguments, write_lines

INT_HASHES = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
KV_EVENTS = TESTS / "core" / "kv_events"
BLOCK_SIZE = 4
TIME = 1.5
"""Of every batch, so that the file is the same each time it is computed."""
POOL_BLOCKS = 40
GROUPS = (0, 1)
STREAMS = 4
BATCHES = 60
WORD = 8
CASES_EACH = 40
MODELS: dict[str, list[tuple[str, int, int | None]]] = {
    "one": [("full_attention", 16, None)],
    "window alone": [("sliding_window", 16, 40)],
    "Gemma-3": [("full_attention", 16, None), ("sliding_window", 16, 65)],
    "two windows": [("full_attention", 16, None), ("sliding_window", 16, 33),
                    ("sliding_window", 16, 100)],
    "two of one window": [("full_attention", 16, None), ("sliding_window", 16, 33),
                          ("sliding_window", 16, 33)],
    "Gemma-4": [("full_attention", 32, None), ("sliding_window", 16, 65)],
    "larger windows": [("full_attention", 16, None), ("sliding_window", 32, 65)],
    "Qwen3.5": [("full_attention", 32, None), ("mamba", 32, None), ("mamba", 32, None)],
    "state and window": [("full_attention", 32, None), ("sliding_window", 32, 65),
                         ("mamba", 32, None)],
    "windows of a token": [("full_attention", 16, None), ("sliding_window", 16, 1)],
}  # fmt: skip


def main() -> None:
    """Write the files."""
    take_no_arguments(__doc__)
    refuse_other_versions()
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    engine = {"backend": "vllm", "backend_version": ENGINE_VERSION}
    init_none_hash(sha256)
    lines = [
        {"kind": "meta", **engine, "msgspec": version("msgspec")},
        *_structs(),
        *_block_pool("ints", "1"),
        *_block_pool("bytes", "0"),
    ]
    write_lines(VECTORS / "kv_events" / "batches.jsonl", lines)
    os.environ[INT_HASHES] = "1"
    prompts = _prompts(random.Random(0))
    _write(
        KV_EVENTS / "pool_streams.json",
        **engine,
        prompts=[[h.hex() for h in _request(ids).block_hashes] for ids in prompts],
        streams=[_stream(prompts, seed) for seed in range(STREAMS)],
    )
    draw = random.Random(0)
    cases = [_case(name, draw) for name in MODELS for _ in range(CASES_EACH)]
    _write(KV_EVENTS / "reuse.json", **engine, cases=cases)
    draw = random.Random(0)
    sequences = [_evictions(draw) for _ in range(8)]
    _write(TESTS / "lab" / "traces" / "block_pools.json", vllm=ENGINE_VERSION, sequences=sequences)


def _write(path: Path, **found: Any) -> None:
    path.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(path.name)


def _structs() -> Iterator[dict[str, Any]]:
    """Every field given, and every default left out."""
    from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

    full, low = bytes(range(32)), 2**64 - 1
    every_field = BlockStored(
        block_hashes=[full, low], parent_block_hash=full, token_ids=[1, 2**32 - 1], block_size=1,
        lora_id=3, medium="CPU", lora_name="adapter",
        extra_keys=[("adapter", ("image", -4), "salt", b"digest"), None], group_idx=1,
        kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=1024,
        locality="REMOTE", ownership="tier", session_id="session",
        lookahead_token_ids=[[5], [6, 7]],
    )  # fmt: skip
    no_defaults = BlockStored(
        block_hashes=[full], parent_block_hash=None, token_ids=[], block_size=16, lora_id=None,
        medium=None, lora_name=None,
    )  # fmt: skip
    removed = BlockRemoved(
        block_hashes=[low], medium="CPU", group_idx=1, locality="REMOTE", ownership="tier"
    )
    batches = {
        "every field": KVEventBatch(TIME, [every_field, removed], 3),
        "defaults left out": KVEventBatch(TIME, [no_defaults, BlockRemoved([full], None)]),
        "cleared": KVEventBatch(TIME, [AllBlocksCleared()], 0),
        "no events": KVEventBatch(TIME, []),
    }
    for name, batch in batches.items():
        yield {"id": name, **_encoded(batch)}


def _block_pool(stream: str, int_hashes: str) -> Iterator[dict[str, Any]]:
    """What one block pool sends while two requests share a prefix, and what it holds then."""
    os.environ[INT_HASHES] = int_hashes
    from vllm.distributed.kv_events import KVEventBatch

    pool = _pool(9)
    prompts = {"first": list(range(12)), "second": [*range(8), 99, 98, 97, 96]}
    requests = {name: _request(ids) for name, ids in prompts.items()}
    blocks: dict[str, list[Any]] = {}

    def step(name: str) -> dict[str, Any]:
        batch = KVEventBatch(TIME, pool.take_events(), 0)
        prefixes = [
            {
                "hashes": [h.hex() for h in request.block_hashes],
                "length": _held(pool, request, (0,)),
            }
            for request in requests.values()
        ]
        return {"id": f"{stream}: {name}", "stream": stream, **_encoded(batch),
                "prefixes": prefixes}  # fmt: skip

    for name, request in requests.items():
        blocks[name] = pool.get_new_blocks(3)
        pool.cache_full_blocks(request, blocks[name], 0, 3, BLOCK_SIZE, 0)
        yield step(f"stored the {name} request, without regard to equal blocks")
    pool.evict_blocks({block.block_id for block in blocks["first"]})
    yield step("evicted the first request's blocks; its prefix has other copies")
    pool.evict_blocks({blocks["second"][1].block_id})
    yield step("evicted the last copy of the second block")
    for name in reversed(requests):
        pool.free_blocks(reversed(blocks[name]))
    pool.reset_prefix_cache()
    yield step("cleared")


def _encoded(batch: Any) -> dict[str, Any]:
    from vllm.distributed.kv_events import KVEventBatch

    payload = msgspec.msgpack.Encoder().encode(batch)
    decoded = msgspec.msgpack.decode(payload, type=KVEventBatch)
    return {"payload": payload.hex(), "expect": facts(decoded)}


def facts(value: Any) -> Any:
    """A decoded value as JSON: structs as objects with their type, bytes as hexadecimal."""
    if isinstance(value, msgspec.Struct):
        fields = {name: facts(v) for name, v in msgspec.structs.asdict(value).items()}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        return [facts(item) for item in value]
    return value


def _pool(blocks: int, *, events: bool = True) -> Any:
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool(blocks, enable_caching=True, hash_block_size=BLOCK_SIZE,
                     enable_kv_cache_events=events)  # fmt: skip


def _prompts(draw: random.Random) -> list[list[int]]:
    """Token IDs of prompts that branch from one another."""
    prompts: list[list[int]] = [[]]
    for _ in range(12):
        begin = draw.choice(prompts)
        begin = begin[: BLOCK_SIZE * draw.randint(0, len(begin) // BLOCK_SIZE)]
        new = [draw.randrange(1000) for _ in range(BLOCK_SIZE * draw.randint(1, 5))]
        prompts.append((begin + new)[: 8 * BLOCK_SIZE])
    return prompts[1:]


def _request(ids: list[int], size: int = BLOCK_SIZE, ahead: int = 0) -> Any:
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request, SamplingParams

    hasher = get_request_block_hasher(size, sha256, ahead)
    return Request("r", ids, SamplingParams(max_tokens=1), None, block_hasher=hasher)


def _stream(prompts: list[list[int]], seed: int) -> list[dict[str, Any]]:
    from vllm.distributed.kv_events import KVEventBatch

    draw = random.Random(seed)
    pool = _pool(POOL_BLOCKS)
    requests = [_request(ids) for ids in prompts]
    running: list[list[Any]] = []
    batches = []
    for number in range(BATCHES):
        for _ in range(draw.randint(1, 2)):
            _step(pool, draw, requests, running)
        # Of each process the times are others, as the clock goes on.
        batch = KVEventBatch(1000.0 * (seed + 1) + number, pool.take_events(), 0)
        payload = base64.b64encode(msgspec.msgpack.Encoder().encode(batch)).decode()
        held = [_held(pool, request, GROUPS) for request in requests]
        batches.append({"payload": payload, "held": held})
    return batches


def _step(pool: Any, draw: random.Random, requests: list[Any], running: list[list[Any]]) -> None:
    """Begin a request, end one, evict a few blocks, or reset."""
    action = draw.choices(("begin", "end", "evict", "reset"), (10, 7, 2, 1))[0]
    if action == "begin":
        request, group = draw.choice(requests), draw.choice(GROUPS)
        blocks: list[Any] = []
        if draw.random() < 0.8:  # else at once with another that computes the same blocks
            for block_hash in request.block_hashes:
                cached = pool.get_cached_block(block_hash, [group])
                if cached is None:
                    break
                blocks += cached
        hits, full = len(blocks), len(request.block_hashes)
        pool.touch(blocks)
        if full - hits > pool.get_num_free_blocks():
            pool.free_blocks(reversed(blocks))
            return
        blocks += pool.get_new_blocks(full - hits)
        masked = [draw.random() < 0.7 for _ in range(full - hits)] if group else None
        pool.cache_full_blocks(request, blocks, hits, full, BLOCK_SIZE, group, masked)
        running.append(blocks)
    elif action == "end" and running:
        pool.free_blocks(reversed(running.pop(draw.randrange(len(running)))))
    elif action == "evict":
        pool.evict_blocks(set(draw.sample(range(1, POOL_BLOCKS), 3)))
    elif action == "reset" and not running:
        pool.reset_prefix_cache()


def _held(pool: Any, request: Any, groups: tuple[int, ...]) -> int:
    """How many leading blocks of a request any group of the pool holds."""
    for at, block_hash in enumerate(request.block_hashes):
        if all(pool.get_cached_block(block_hash, [group]) is None for group in groups):
            return at
    return len(request.block_hashes)


def _case(name: str, draw: random.Random) -> dict[str, Any]:
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    groups = MODELS[name]
    size = math.gcd(*(block_size for _, block_size, _ in groups))
    num_tokens = draw.choice((draw.randint(1, 12 * size), 8 * size, 12 * size + 1))
    ahead = draw.choice((0, 0, 1))
    request = _request([7] * num_tokens, size, ahead)
    density = draw.choice((0.5, 0.8, 0.95, 1.0))
    held = []
    for _, block_size, _ in groups:
        scale = block_size // size
        one = [False] * len(request.block_hashes)
        leading = draw.randint(0, len(one))
        for at in range(scale - 1, len(one), scale):
            one[at] = at < leading or draw.random() < density
        held.append(one)
    manager = _manager(groups, size, ahead)
    pool = manager.block_pool
    for number, one in enumerate(held):
        for block_hash, is_held in zip(request.block_hashes, one, strict=True):
            if is_held:
                (block,) = pool.get_new_blocks(1)
                key = make_block_hash_with_group_id(block_hash, number)
                block.set_block_hash(key)
                pool.cached_block_hash_to_block.insert(key, block)
    _, reused, _ = manager.coordinator.find_longest_cache_hit(request.block_hashes, num_tokens - 1)
    return {"model": name, "groups": groups, "block_size": size, "num_tokens": num_tokens,
            "held": held, "reused": reused}  # fmt: skip


def _manager(groups: list[tuple[str, int, int | None]], size: int, ahead: int) -> Any:
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    layout = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    specs: list[Any] = []
    for kind, block_size, window in groups:
        if kind == "full_attention":
            specs.append(FullAttentionSpec(block_size=block_size, **layout))
        elif kind == "sliding_window":
            specs.append(SlidingWindowSpec(block_size=block_size, sliding_window=window, **layout))
        else:
            specs.append(MambaSpec(block_size=block_size, shapes=((1, 1),),
                                   dtypes=(torch.float32,), mamba_cache_mode="align"))  # fmt: skip
    config = KVCacheConfig(
        num_blocks=200,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec([f"layer {n}"], spec) for n, spec in enumerate(specs)],
    )
    return KVCacheManager(
        config,
        max_model_len=4096,
        scheduler_block_size=math.lcm(*(block_size for _, block_size, _ in groups)),
        hash_block_size=size,
        max_in_flight_tokens=4096,
        num_hash_lookahead_tokens=ahead,
    )


def _serve(pool: Any, hashes: list[int], num_tokens: int) -> int:
    """As KVCacheManager does for one request and one group of full attention."""
    keys = [value.to_bytes(WORD, "big") for value in hashes]
    cached = []
    for key in keys[: (num_tokens - 1) // BLOCK_SIZE]:
        found = pool.get_cached_block(key, [0])
        if not found:
            break
        cached.append(found[0])
    pool.touch(cached)
    blocks = cached + pool.get_new_blocks(-(-num_tokens // BLOCK_SIZE) - len(cached))
    request: Any = SimpleNamespace(block_hashes=keys, request_id="request")
    pool.cache_full_blocks(request, blocks, len(cached), len(keys), BLOCK_SIZE, 0)
    pool.free_blocks(reversed(blocks))
    return len(cached)


def _order(pool: Any) -> list[int]:
    """The hashes of free cached blocks, the next to be evicted first."""
    free = pool.free_block_queue.get_all_free_blocks()
    return [int.from_bytes(b.block_hash[:WORD], "big") for b in free if b.block_hash is not None]


def _evictions(draw: random.Random) -> dict[str, Any]:
    num_blocks = draw.randint(4, 24)
    pool = _pool(num_blocks + 1, events=False)
    prompts: list[list[int]] = []
    steps: list[dict[str, Any]] = []
    while len(steps) < 30:
        known = draw.choice(prompts) if prompts and draw.random() < 0.7 else []
        hashes = known[: draw.randint(0, len(known))]
        hashes = hashes + [draw.randrange(1, 1 << 24) for _ in range(draw.randint(0, 5))]
        rest = draw.choice([0, 0, 1, 3])
        num_tokens = len(hashes) * BLOCK_SIZE + rest
        if not num_tokens or len(hashes) + bool(rest) > num_blocks:
            continue
        prompts.append(hashes)
        cached = _serve(pool, hashes, num_tokens)
        steps.append({"hashes": hashes, "rest": rest, "cached": cached, "order": _order(pool)[:8]})
    return {"num_blocks": num_blocks, "steps": steps, "held": _order(pool)}


if __name__ == "__main__":
    main()
