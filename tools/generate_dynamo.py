"""Compute block_hashes/dynamo.jsonl with Dynamo's own hash function.

Run it where ai-dynamo-runtime is installed (a CPU is enough), from the repository's root:

    python tools/generate_dynamo.py

Only which blocks an image overlaps is worked out here, because Dynamo takes it as an argument.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

from vector_files import VECTORS, requests_of, take_no_arguments, write_lines

OUTPUT = VECTORS / "block_hashes" / "dynamo.jsonl"
PACKAGE = "ai-dynamo-runtime"
PACKAGE_VERSION = "1.6.1"


def main() -> None:
    """Write the file."""
    take_no_arguments(__doc__)
    if version(PACKAGE) != PACKAGE_VERSION:
        sys.exit(f"these vectors are {PACKAGE} {PACKAGE_VERSION}'s; found {version(PACKAGE)}")
    lines: list[dict[str, Any]] = [
        {"kind": "meta", "package": PACKAGE, "package_version": PACKAGE_VERSION}
    ]
    lines += [case | {"expect": expected(case)} for case in requests_of(OUTPUT)]
    write_lines(OUTPUT, lines)


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
