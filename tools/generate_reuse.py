"""Compute tests/core/kv_events/reuse.json with vLLM's own cache coordinator.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_reuse.py

Each case is a set of KV cache groups, the blocks of one prompt that the pool holds for each of
them, as drawn with a seed, and what `find_longest_cache_hit` makes of them.
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

from engine import ENGINE_VERSION, refuse_other_versions
from vector_files import TESTS

OUTPUT = TESTS / "core" / "kv_events" / "reuse.json"
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
    """Write the file."""
    refuse_other_versions()
    os.environ["PYTHONHASHSEED"] = "0"
    draw = random.Random(0)
    cases = [_case(name, draw) for name in MODELS for _ in range(CASES_EACH)]
    found = {"backend": "vllm", "backend_version": ENGINE_VERSION, "cases": cases}
    OUTPUT.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"{len(cases)} cases")


def _case(name: str, draw: random.Random) -> dict[str, Any]:
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils as kv
    from vllm.v1.request import Request, SamplingParams

    kv.init_none_hash(sha256)
    groups = MODELS[name]
    size = math.gcd(*(block_size for _, block_size, _ in groups))
    num_tokens = draw.choice((draw.randint(1, 12 * size), 8 * size, 12 * size + 1))
    ahead = draw.choice((0, 0, 1))
    hasher = kv.get_request_block_hasher(size, sha256, ahead)
    params = SamplingParams(max_tokens=1)
    request = Request("r", [7] * num_tokens, params, None, block_hasher=hasher)
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
                key = kv.make_block_hash_with_group_id(block_hash, number)
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


if __name__ == "__main__":
    main()
