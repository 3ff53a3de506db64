"""Sequences of requests through vLLM's own BlockPool: what was cached, and the order of eviction.

Run where vLLM is installed, from the repository's root:

    python tools/generate_block_pools.py > tests/lab/traces/block_pools.json
"""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

BLOCK_SIZE = 4
WORD = 8


def serve(pool: Any, hashes: list[int], num_tokens: int) -> int:
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


def order(pool: Any) -> list[int]:
    """The hashes of free cached blocks, the next to be evicted first."""
    free = pool.free_block_queue.get_all_free_blocks()
    return [int.from_bytes(b.block_hash[:WORD], "big") for b in free if b.block_hash is not None]


def main() -> None:
    """Print the sequences."""
    from vllm.v1.core.block_pool import BlockPool

    draw = random.Random(0)
    sequences = []
    for _ in range(8):
        num_blocks = draw.randint(4, 24)
        pool = BlockPool(num_blocks + 1, enable_caching=True, hash_block_size=BLOCK_SIZE)
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
            cached = serve(pool, hashes, num_tokens)
            steps.append(
                {"hashes": hashes, "rest": rest, "cached": cached, "order": order(pool)[:8]}
            )
        sequences.append({"num_blocks": num_blocks, "steps": steps, "held": order(pool)})
    print(json.dumps({"vllm": "0.33.0", "sequences": sequences}))


if __name__ == "__main__":
    main()
