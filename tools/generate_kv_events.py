"""Compute kv_events/batches.jsonl with vLLM's own structs, block pool and encoder.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_kv_events.py

Nothing here decides what is right: a payload's facts are what vLLM's own decoder finds in it, and
what a worker holds is what the block pool that sent the events finds.
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import msgspec
from engine import ENGINE_VERSION, refuse_other_versions
from vector_files import VECTORS, write_lines

INT_HASHES = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
BLOCK_SIZE = 4
TIME = 1.5
"""Of every batch, so that the file is the same each time it is computed."""


def main() -> None:
    """Write the file."""
    refuse_other_versions()
    lines = [
        {"kind": "meta", "backend": "vllm", "backend_version": ENGINE_VERSION,
         "msgspec": version("msgspec")},
        *_structs(),
        *_block_pool("ints", "1"),
        *_block_pool("bytes", "0"),
    ]  # fmt: skip
    write_lines(VECTORS / "kv_events" / "batches.jsonl", lines)


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
    from vllm.utils.hashing import sha256
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request, SamplingParams

    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
    pool = BlockPool(9, enable_caching=True, hash_block_size=BLOCK_SIZE,
                     enable_kv_cache_events=True)  # fmt: skip
    prompts = {"first": list(range(12)), "second": [*range(8), 99, 98, 97, 96]}
    requests = {
        name: Request(name, ids, SamplingParams(max_tokens=1), None, block_hasher=hasher)
        for name, ids in prompts.items()
    }
    blocks: dict[str, list[Any]] = {}

    def step(name: str) -> dict[str, Any]:
        batch = KVEventBatch(TIME, pool.take_events(), 0)
        prefixes = [
            {"hashes": [h.hex() for h in request.block_hashes], "length": _held(pool, request)}
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


def _held(pool: Any, request: Any) -> int:
    """How many leading blocks of a request the pool holds."""
    held = [pool.get_cached_block(h, [0]) is not None for h in request.block_hashes]
    return held.index(False) if False in held else len(held)


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


if __name__ == "__main__":
    main()
