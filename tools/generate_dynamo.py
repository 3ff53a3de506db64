"""Compute block_hashes/dynamo.jsonl with Dynamo's own hash function.

Run it where ai-dynamo-runtime is installed (a CPU is enough), from the repository's root:

    python tools/generate_dynamo.py

Only which blocks an image overlaps is worked out here, because Dynamo takes it as an argument.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

from vector_files import VECTORS, write_lines

PACKAGE = "ai-dynamo-runtime"
PACKAGE_VERSION = "1.6.1"
LARGEST_ID = 2**32 - 1
LARGEST_HASH = 2**64 - 1


def main() -> None:
    """Write the file."""
    if version(PACKAGE) != PACKAGE_VERSION:
        sys.exit(f"these vectors are {PACKAGE} {PACKAGE_VERSION}'s; found {version(PACKAGE)}")
    lines: list[dict[str, Any]] = [
        {"kind": "meta", "package": PACKAGE, "package_version": PACKAGE_VERSION}
    ]
    lines += [case | {"expect": expected(case)} for case in cases()]
    write_lines(VECTORS / "block_hashes" / "dynamo.jsonl", lines)


def cases() -> Iterator[dict[str, Any]]:
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


def expected(case: dict[str, Any]) -> list[int]:
    """The answer of the installed package."""
    hashes: list[int] = import_module("dynamo._core").compute_block_hash_for_seq(
        case["token_ids"],
        case["block_size"],
        _block_mm_infos(case),
        case.get("lora_name"),
        cache_namespace=case.get("namespace"),
    )
    return hashes


def _block_mm_infos(case: dict[str, Any]) -> list[dict[str, Any] | None]:
    size = case["block_size"]
    infos: list[dict[str, Any] | None] = []
    for start in range(0, len(case["token_ids"]), size):
        stop = start + size
        found = [
            {"mm_hash": number, "offsets": [[max(at - start, 0), min(at + length, stop) - start]]}
            for number, at, length in case.get("images", [])
            if at < stop and start < at + length
        ]
        infos.append({"mm_objects": found} if found else None)
    return infos


if __name__ == "__main__":
    main()
