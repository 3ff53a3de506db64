"""Compute tests/core/kv_events/pool_streams.json with vLLM's own block pool.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_pool_streams.py

Each stream is the life of one engine process: requests begin, end and are evicted, as drawn with a
seed. What a batch holds is what the pool's own `take_events` gives, encoded as its publisher
does. What the pool holds after it is what its own `get_cached_block` finds.
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import base64
import json
import os
import random
from typing import Any

from engine import ENGINE_VERSION, refuse_other_versions
from vector_files import TESTS

OUTPUT = TESTS / "core" / "kv_events" / "pool_streams.json"
BLOCK_SIZE = 4
POOL_BLOCKS = 40
GROUPS = (0, 1)
STREAMS = 4
BATCHES = 60


def main() -> None:
    """Write the file."""
    refuse_other_versions()
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "1"
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(sha256)
    prompts = _prompts(random.Random(0))
    found = {
        "backend": "vllm",
        "backend_version": ENGINE_VERSION,
        "prompts": [[h.hex() for h in _request(ids).block_hashes] for ids in prompts],
        "streams": [_stream(prompts, seed) for seed in range(STREAMS)],
    }
    OUTPUT.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"{STREAMS * BATCHES} batches")


def _prompts(draw: random.Random) -> list[list[int]]:
    """Token IDs of prompts that branch from one another."""
    prompts: list[list[int]] = [[]]
    for _ in range(12):
        begin = draw.choice(prompts)
        begin = begin[: BLOCK_SIZE * draw.randint(0, len(begin) // BLOCK_SIZE)]
        new = [draw.randrange(1000) for _ in range(BLOCK_SIZE * draw.randint(1, 5))]
        prompts.append((begin + new)[: 8 * BLOCK_SIZE])
    return prompts[1:]


def _request(ids: list[int]) -> Any:
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request, SamplingParams

    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
    return Request("r", ids, SamplingParams(max_tokens=1), None, block_hasher=hasher)


def _stream(prompts: list[list[int]], seed: int) -> list[dict[str, Any]]:
    import msgspec
    from vllm.distributed.kv_events import KVEventBatch
    from vllm.v1.core.block_pool import BlockPool

    draw = random.Random(seed)
    pool = BlockPool(POOL_BLOCKS, enable_caching=True, hash_block_size=BLOCK_SIZE,
                     enable_kv_cache_events=True)  # fmt: skip
    requests = [_request(ids) for ids in prompts]
    running: list[list[Any]] = []
    batches = []
    for number in range(BATCHES):
        for _ in range(draw.randint(1, 2)):
            _step(pool, draw, requests, running)
        # Of each process the times are others, as the clock goes on.
        batch = KVEventBatch(1000.0 * (seed + 1) + number, pool.take_events(), 0)
        payload = base64.b64encode(msgspec.msgpack.Encoder().encode(batch)).decode()
        held = [_held(pool, request) for request in requests]
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


def _held(pool: Any, request: Any) -> int:
    """How many leading blocks of a request any group of the pool holds."""
    for at, block_hash in enumerate(request.block_hashes):
        if all(pool.get_cached_block(block_hash, [group]) is None for group in GROUPS):
            return at
    return len(request.block_hashes)


if __name__ == "__main__":
    main()
