"""vLLM's answers to requests with image files, and what is compared with them."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import pickle
from typing import Any

from comparison import (
    NOT_FOLLOWED,
    differences,
    expanded,
    first_difference,
    hash_difference,
    read_lines,
    request_of,
    with_files,
)
from paths import VECTORS

from mmroute import Normalizer
from mmroute.cli.requests import answer_line, tokens_answer
from mmroute.hashing import event_extra_keys
from mmroute.requests import lines as request_lines

DIRECTORY = VECTORS / "images"
FILES = DIRECTORY / "files.jsonl"
IMAGE_VECTORS = sorted(path for path in DIRECTORY.glob("*.jsonl") if path != FILES)
BLOCK_SIZE = 16
HASH_SEED = "0"  # of the xxhash algorithms; see tools/engine.py


@functools.cache
def file_urls() -> dict[str, str]:
    """The data URLs of all image files, by the names that requests have for them."""
    return {line["name"]: line["url"] for line in read_lines(FILES)}


def image_files() -> dict[str, bytes]:
    """One small file of every kind, by name."""
    return {name: base64.b64decode(url.partition(",")[2]) for name, url in file_urls().items()}


def data_url(data: bytes) -> str:
    """A file as a request has it."""
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def wrong_parts(normalizer: Normalizer, case: dict[str, Any]) -> dict[str, str]:
    """What is wrong with the answer to a case, by its part: IDs, ranges, identities, hashes."""
    request, expected = with_files(request_of(case), file_urls()), case["expect"]
    answer = answer_line(json.dumps(request), normalizer.answer, tokens_answer)
    if answer.get("reason") == NOT_FOLLOWED and "refused" not in expected:
        plain = {k: v for k, v in request.items() if k != "mm_processor_kwargs"}
        # Only an argument that changes nothing may be left to the engine.
        answer = answer_line(json.dumps(plain), normalizer.answer, tokens_answer)
        return differences(answer, expected, normalizer.model.tokenizer.decode)
    wrong = differences(answer, expected, normalizer.model.tokenizer.decode)
    if "exact" in wrong or "block_hashes" not in expected:
        return wrong
    routing = normalizer.answer(request_lines.request_of(request))
    keys = routing.extra_keys(block_size=BLOCK_SIZE)
    found: dict[str, Any] = {
        "mm_identifiers": [str(identity) for identity in routing.identities],
        "block_extra_keys": keys,
        "event_extra_keys": event_extra_keys(keys) or None,
    }
    for name, value in found.items():
        if name in expected and _as_json(value) != expected[name]:
            wrong[name] = f"SILENT: {_as_json(value)}, the engine has {expected[name]}"
    for algorithm, stored in expected["block_hashes"].items():
        seed = HASH_SEED if algorithm.startswith("xxhash") else None
        hashes = routing.block_hashes(algorithm, block_size=BLOCK_SIZE, seed=seed)
        if (other := hash_difference(hashes.hex(), stored)) is not None:
            wrong[f"block_hashes.{algorithm}"] = other
        ints = expected.get("event_int64", {}).get(algorithm)
        if ints is not None and hashes.event_ints()[: len(ints["first"])] != ints["first"]:
            wrong[f"event_int64.{algorithm}"] = first_difference(
                hashes.event_ints()[: len(ints["first"])], ints["first"]
            )
    return wrong


def engine_hashes(expect: dict[str, Any]) -> list[bytes]:
    """The block hashes of an answer of vLLM's, made of it without mmroute.

    vLLM 0.33.0 ``hash_block_tokens`` with its default algorithm.
    """
    ids = expanded(expect["token_runs"])
    hashes = [hashlib.sha256(pickle.dumps("vllm-none-hash", protocol=5)).digest()]
    for i, keys in enumerate(expect["block_extra_keys"]):
        tokens = tuple(ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE])
        # Tags are constants of the engine's code, one object each; what came with the request
        # is an object of its own every time.
        tagged = keys and tuple((_TAGS[tag], *_as_json(rest)) for tag, *rest in keys)
        value = (hashes[-1], tokens, tagged)
        hashes.append(hashlib.sha256(pickle.dumps(value, protocol=5)).digest())
    return hashes[1:]


_TAGS = {tag: tag for tag in ("lora", "mm", "cache_salt")}


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
