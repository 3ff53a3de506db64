"""Compute hashes and identities with the functions of earlier versions of vLLM themselves.

    python tools/generate_versions.py DIRECTORY

DIRECTORY holds the ``vllm`` package of each version's wheel, unpacked, in a directory by the
version's name. Only the functions named below are taken out of it, so that nothing else must be
installed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import pickle
import random
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import blake3
import numpy as np
from PIL import Image
from vector_files import VECTORS, write_lines

VERSIONS = ("0.15.0", "0.18.0", "0.23.0", "0.26.0", "0.28.0", "0.30.0")
WITH_CONVERSION = ("0.28.0", "0.30.0")
HASHING = ("_gen_mm_extra_hash_keys", "_gen_lora_extra_hash_keys",
           "_gen_prompt_embeds_extra_hash_keys", "generate_block_hash_extra_keys",
           "hash_block_tokens")  # fmt: skip
CONVERSION = {"image_mode": "RGB", "rgba_background_color": (255, 255, 255)}


class MediaWithBytes:
    """What vLLM's class of that name holds."""

    def __init__(self, data: bytes, conversion: dict[str, Any] | None) -> None:
        self.media = Image.new("RGB", (3, 2))
        self.original_bytes = data
        self.io_config = conversion


def taken(path: Path, names: Sequence[str], known: dict[str, Any]) -> dict[str, Any]:
    """Functions and classes of a file, without the rest of it."""
    source = path.read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            text = f"from __future__ import annotations\n{ast.get_source_segment(source, node)}"
            exec(compile(text, str(path), "exec"), known)  # noqa: S102 - what this script is for
    return known


def sha256(value: object) -> bytes:
    """As ``vllm/utils/hashing.py``."""
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def hashes(code: dict[str, Any], case: dict[str, Any]) -> list[str]:
    """The block hashes of one case."""
    request = SimpleNamespace(
        mm_features=[
            SimpleNamespace(
                identifier=str(identity).encode().decode(),
                mm_position=SimpleNamespace(offset=offset, length=length),
            )
            for identity, offset, length in case["items"]
        ],
        lora_request=SimpleNamespace(lora_name=case["lora"]) if case["lora"] else None,
        cache_salt=case["cache_salt"],
        prompt_embeds=None,
    )
    found, parent, item, size = [], None, 0, case["block_size"]
    for start in range(0, len(case["token_ids"]) // size * size, size):
        extra, item = code["generate_block_hash_extra_keys"](request, start, start + size, item)
        ids = case["token_ids"][start : start + size]
        parent = code["hash_block_tokens"](sha256, parent, ids, extra)
        found.append(parent.hex())
    return found


def cases() -> list[dict[str, Any]]:
    """Prompts with items that begin, end and touch at the edges of blocks."""
    chance = random.Random(28)
    found = []
    for size in (4, 4, 4, 4, 16, 16):
        offset, items = 0, []
        for length in chance.sample((1, 3, 4, 8, 16), 3):
            offset += chance.choice((0, 1, 4))
            items.append((chance.choice(("cat", "dog")), offset, length))
            offset += length
        ids = [chance.randrange(1000) for _ in range(offset + 9)]
        found.append({
            "token_ids": ids, "items": items, "block_size": size,
            "lora": chance.choice((None, "sql")), "cache_salt": chance.choice((None, "salt")),
        })  # fmt: skip
    return found


def main() -> None:
    """Write the file."""
    lines = []
    for version in VERSIONS:
        root = Path(sys.argv[1]) / version / "vllm"
        code = taken(root / "v1/core/kv_cache_utils.py", HASHING, {"BlockHash": bytes})
        code["NONE_HASH"] = sha256("0")
        hasher = taken(
            root / "multimodal/hasher.py",
            ("_get_hasher_factory", "MultiModalHasher"),
            {
                "hashlib": hashlib, "np": np, "Image": Image, "uuid": uuid, "pickle": pickle,
                "MediaWithBytes": MediaWithBytes, "functools": functools, "blake3": blake3.blake3,
                "torch": SimpleNamespace(Tensor=type("Tensor", (), {})),
                "envs": SimpleNamespace(VLLM_MM_HASHER_ALGORITHM="blake3"),
            },
        )["MultiModalHasher"]  # fmt: skip
        algorithm = ("blake3",) if version in WITH_CONVERSION else ()
        identities = [
            hasher.hash_kwargs(*algorithm, model_id="org/model", image=MediaWithBytes(b"file", c))
            for c in (None, CONVERSION if algorithm else None)
        ]
        answered = [{**case, "hashes": hashes(code, case)} for case in cases()]
        lines.append({"version": version, "identities": identities, "cases": answered})
    write_lines(VECTORS / "versions" / "hashes.jsonl", lines)


if __name__ == "__main__":
    main()
