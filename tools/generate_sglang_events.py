"""Compute kv_events/sglang.jsonl with SGLang's own structs, prefix cache and encoder.

Run it where SGLang is installed (a CPU is enough), from the repository's root:

    python tools/generate_sglang_events.py

A payload's facts are its arrays and maps: SGLang's own structs do not read its pairs of tokens.
What a worker holds is what the prefix cache that sent the events finds.
"""

# SGLang is imported only where it is installed.

from __future__ import annotations

from array import array
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
from generate_pools import TIME
from generate_sglang import VERSION
from vector_files import VECTORS, take_no_arguments, write_lines

PAGE_SIZE = 4
_ADAPTER = ("sql", "adapters/sql")  # its name and its path
_PAD = 1 << 61  # a pad value of an image
# Without an extra key: events do not tell pages of one key from those of another.
_PROMPTS: dict[str, dict[str, Any]] = {
    "first": {"token_ids": list(range(12))},
    "second": {"token_ids": [*range(8), 99, 98, 97, 96]},
    "salted": {"token_ids": list(range(12)), "cache_salt": "tenant"},
    "with an image": {"token_ids": [1, 2, *[_PAD, _PAD + 1] * 4, 3, 4]},
}


def main() -> None:
    """Write the file."""
    take_no_arguments(__doc__)
    if version("sglang") != VERSION:
        raise SystemExit(f"SGLang {VERSION} is wanted, found {version('sglang')}")
    lines = [
        {"kind": "meta", "backend": "sglang", "backend_version": VERSION,
         "msgspec": version("msgspec")},
        *_structs(),
        *_stream("pages", eagle=False),
        *_stream("pairs", eagle=True),
        *_namespaces(),
    ]  # fmt: skip
    write_lines(VECTORS / "kv_events" / "sglang.jsonl", lines)


def _structs() -> Iterator[dict[str, Any]]:
    """Every field given, and every default left out."""
    from sglang.srt.disaggregation.kv_events import (
        AllBlocksCleared,
        BlockRemoved,
        BlockStored,
        KVEventBatch,
        StorageMedium,
    )

    low, high = -(1 << 63), (1 << 63) - 1
    every_field = BlockStored(
        block_hashes=[low, high], parent_block_hash=-1, token_ids=[1, _PAD], block_size=1,
        lora_id=3, medium=StorageMedium.CPU, cache_salt="salt", session_id="session",
        lora_name="adapter",
    )  # fmt: skip
    no_defaults = BlockStored(
        block_hashes=[7], parent_block_hash=None, token_ids=[1], block_size=1, lora_id=None
    )
    media = [BlockRemoved([number], medium) for number, medium in enumerate(StorageMedium)]
    batches = {
        "every field": KVEventBatch(TIME, [every_field, *media], 3),
        "defaults left out": KVEventBatch(TIME, [no_defaults, BlockRemoved([low])]),
        "cleared": KVEventBatch(TIME, [AllBlocksCleared()], 0),
    }
    for name, batch in batches.items():
        yield {"id": name, **_encoded(batch)}


def _stream(stream: str, *, eagle: bool) -> Iterator[dict[str, Any]]:
    """What one prefix cache sends while prompts come and go, and what it holds then."""
    from sglang.srt.disaggregation.kv_events import KVEventBatch
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    hashes = {}
    for name, prompt in _PROMPTS.items():
        alone = _cache(eagle)
        _insert(alone, prompt)
        hashes[name] = [number for e in alone.take_events() for number in e.block_hashes]
    cache = _cache(eagle)

    def step(name: str) -> dict[str, Any]:
        batch = KVEventBatch(TIME, cache.take_events(), 0)
        prefixes = [
            {"prompt": name, "hashes": hashes[name], "length": _held(cache, prompt)}
            for name, prompt in _PROMPTS.items()
        ]
        return {"id": f"{stream}: {name}", "stream": stream, **_encoded(batch),
                "prefixes": prefixes}  # fmt: skip

    for name, prompt in _PROMPTS.items():
        _insert(cache, prompt)
        yield step(f"stored the {name} prompt")
    for number in range(3):
        cache.evict(EvictParams(num_tokens=PAGE_SIZE))
        yield step(f"evicted leaf {number}")
    cache.reset()
    yield step("cleared")


def _namespaces() -> Iterator[dict[str, Any]]:
    """The pages of one prompt, by the format of events, salt and adapter."""
    from sglang.srt.disaggregation.kv_events import KVEventBatch
    from sglang.srt.lora.lora_registry import LoRARef
    from sglang.srt.mem_cache.events import KVCacheEventRecorder, KvEventLoraNames

    for dynamo, salt, adapter in product((False, True), (None, "tenant"), (None, _ADAPTER)):
        names, key = KvEventLoraNames(), None
        if adapter is not None:
            key = LoRARef.deterministic_id(*adapter)
            names.register(SimpleNamespace(lora_id=key, extra_key=key), adapter[0])
        cache = _cache(eagle=False)
        cache.kv_events = KVCacheEventRecorder(
            enabled=True, page_size=PAGE_SIZE, dynamo_format=dynamo, lora_names=names
        )
        _insert(cache, {"token_ids": list(range(12)), "cache_salt": salt, "extra_key": key})
        namespace = {"dynamo": dynamo, "cache_salt": salt, "adapter": adapter}
        batch = KVEventBatch(TIME, cache.take_events(), 0)
        yield {"id": f"namespace: {namespace}", "namespace": namespace, **_encoded(batch)}


def _cache(eagle: bool) -> Any:
    from sglang.srt.mem_cache.radix_cache import RadixCache

    pool = SimpleNamespace(free_segment=lambda *_, **__: None, device="cpu")
    cache = RadixCache.create_simulated(
        mock_allocator=pool, page_size=PAGE_SIZE, enable_kv_cache_events=True
    )
    cache.is_eagle = eagle
    cache.take_events()  # it is cleared when it is made
    return cache


def _key(prompt: dict[str, Any]) -> Any:
    from sglang.srt.mem_cache.radix_cache import RadixKey

    return RadixKey(**prompt | {"token_ids": array("q", prompt["token_ids"])})


def _insert(cache: Any, prompt: dict[str, Any]) -> None:
    import torch
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams

    slots = torch.arange(len(prompt["token_ids"]))
    cache.insert(InsertParams(key=_key(prompt), value=slots))


def _held(cache: Any, prompt: dict[str, Any]) -> int:
    from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

    found = cache.match_prefix(MatchPrefixParams(key=_key(prompt)))
    return int(found.device_prefix_len) // PAGE_SIZE


def _encoded(batch: Any) -> dict[str, Any]:
    payload = msgspec.msgpack.Encoder().encode(batch)
    return {"payload": payload.hex(), "expect": msgspec.msgpack.decode(payload)}


if __name__ == "__main__":
    main()
