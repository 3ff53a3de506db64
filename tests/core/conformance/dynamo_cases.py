"""Requests of `block_hashes/dynamo.jsonl`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

LARGEST_ID: Final = 2**32 - 1
LARGEST_HASH: Final = 2**64 - 1


def dynamo_cases() -> Iterator[dict[str, Any]]:
    """Each rule alone, then all of them together."""
    prompt = [*range(1, 10), LARGEST_ID]
    plain = {"token_ids": prompt, "block_size": 4}
    yield plain
    yield {"token_ids": [], "block_size": 4}
    yield {"token_ids": prompt, "block_size": 16}
    yield {"token_ids": prompt, "block_size": 1}
    for field in ("lora_name", "namespace"):
        for text in ("", "a", "sql-adapter", "ünïcode 🐈"):
            yield plain | {field: text}
    yield plain | {"lora_name": "both", "namespace": "both"}
    yield plain | {"images": [[7, 0, 4]]}
    yield plain | {"images": [[7, 3, 2]]}
    yield plain | {"images": [[7, 9, 1]]}
    yield plain | {"images": [[9, 0, 1], [7, 1, 1]]}
    yield plain | {"images": [[7, 0, 1], [7, 1, 1]]}
    yield plain | {"images": [[LARGEST_HASH, 0, 1], [1, 1, 5], [0, 6, 2]]}
    draw = random.Random(0)
    for _ in range(40):
        count = draw.randrange(1, 80)
        images = []
        for _ in range(draw.randrange(5)):
            offset = draw.randrange(count)
            images.append([draw.getrandbits(64), offset, draw.randrange(1, count - offset + 1)])
        yield {
            "token_ids": [draw.randrange(1 << draw.randrange(1, 33)) for _ in range(count)],
            "block_size": draw.choice([1, 2, 3, 4, 16, 64]),
            "images": images,
            "lora_name": draw.choice([None, "adapter"]),
            "namespace": draw.choice([None, "tenant"]),
        }
