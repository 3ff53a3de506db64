"""vLLM's answers to requests with image files, and what is compared with them."""

from __future__ import annotations

import functools
import json
from typing import Any

from conformance import REQUEST_FIELDS, difference
from image_cases import resolve
from paths import VECTORS

from mmroute import Normalizer
from mmroute.hashing import event_extra_keys
from mmroute.request_lines import RequestLine

DIRECTORY = VECTORS / "images"
FILES = DIRECTORY / "files.jsonl"
IMAGE_VECTORS = sorted(path for path in DIRECTORY.glob("*.jsonl") if path != FILES)
BLOCK_SIZE = 16
HASH_SEED = "0"  # of the xxhash algorithms; see tests/generators/engine.py


@functools.cache
def file_urls() -> dict[str, str]:
    """The data URLs of all image files, by the names that requests have for them."""
    lines = map(json.loads, FILES.read_text(encoding="utf-8").splitlines())
    return {line["name"]: line["url"] for line in lines}


def block_difference(normalizer: Normalizer, case: dict[str, Any]) -> str | None:
    """What is wrong with the answer to a case, or None: IDs, identities, keys, hashes, events."""
    case = resolve(case, file_urls())
    wrong = difference(normalizer, case)
    expected = case["expect"]
    if wrong is not None or "block_hashes" not in expected:
        return wrong
    request = {name: case[name] for name in REQUEST_FIELDS if name in case}
    routing = normalizer.answer(RequestLine.model_validate(request).request())
    keys = routing.extra_keys(block_size=BLOCK_SIZE)
    found: dict[str, Any] = {
        "mm_identifiers": [str(identity) for identity in routing.image_identities],
        "block_extra_keys": keys,
        "event_extra_keys": event_extra_keys(keys) or None,
    }
    for name, value in found.items():
        if name in expected and _as_json(value) != expected[name]:
            return f"SILENT: other {name}: {_as_json(value)} != {expected[name]}"
    for algorithm, stored in expected["block_hashes"].items():
        theirs = _summary(stored)
        seed = HASH_SEED if algorithm.startswith("xxhash") else None
        hashes = routing.block_hashes(algorithm, block_size=BLOCK_SIZE, seed=seed)
        ours = hashes.hex()
        if (len(ours), ours[: len(theirs["first"])]) != (theirs["n"], theirs["first"]):
            return f"SILENT: other {algorithm} hashes: {ours[:4]} != {theirs}"
        if ours and ours[-1] != theirs["last"]:
            return f"SILENT: other last {algorithm} hash: {ours[-1]} != {theirs['last']}"
        ints = expected.get("event_int64", {}).get(algorithm)
        if ints is not None and hashes.event_ints()[: len(ints["first"])] != ints["first"]:
            return f"SILENT: other integers: {hashes.event_ints()[:4]} != {ints['first']}"
    return None


def _summary(hashes: Any) -> dict[str, Any]:
    """How many hashes, the first of them, and the last, which covers all."""
    if isinstance(hashes, dict):
        return hashes
    return {"n": len(hashes), "first": hashes, "last": hashes[-1] if hashes else None}


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
