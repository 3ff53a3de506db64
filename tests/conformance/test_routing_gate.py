"""The strong gate: a router that uses mmroute finds every prompt that comes back.

The workers hold what vLLM holds: token IDs and extra keys come from vLLM's own answers, kept in
``vectors/images``, and are hashed here as vLLM hashes them, without mmroute. The router
sees requests only.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import expanded, read_vectors, request_of, with_files
from image_vectors import IMAGE_VECTORS, file_urls
from kv_aware_routing import BLOCK_SIZE, hit_rate, shuffled_repeats

from mmroute import Normalizer, Routing
from mmroute.hashing import hash_blocks
from mmroute.requests import lines

pytestmark = pytest.mark.conformance

REPEATS = 4
WORKERS = 4
BAR = (REPEATS - 1) / REPEATS
Prompts = list[tuple[Sequence[bytes], Sequence[bytes]]]


def engine_hashes(expect: dict[str, Any]) -> list[bytes]:
    """vLLM 0.33.0 ``hash_block_tokens`` with its default algorithm, from its own answer."""
    ids = expanded(expect["token_runs"])
    hashes = [hashlib.sha256(pickle.dumps("vllm-none-hash", protocol=5)).digest()]
    for i, keys in enumerate(expect["block_extra_keys"]):
        tokens = tuple(ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE])
        # Tags are constants of the engine's code, one object each; what came with the request
        # is an object of its own every time.
        tagged = keys and tuple((TAGS[tag], *copy_of(rest)) for tag, *rest in keys)
        value = (hashes[-1], tokens, tagged)
        hashes.append(hashlib.sha256(pickle.dumps(value, protocol=5)).digest())
    return hashes[1:]


TAGS = {tag: tag for tag in ("lora", "mm", "cache_salt")}


def copy_of(values: list[Any]) -> list[Any]:
    return list(json.loads(json.dumps(values)))


def distinct_prompts(
    model: Normalizer, path: Path, look_up: Callable[[Routing], Sequence[bytes]]
) -> Prompts:
    """What the router looks up, and what the engine holds, for all prompts with an image."""
    _, cases = read_vectors(path)
    urls = file_urls()
    prompts: dict[bytes, tuple[Sequence[bytes], Sequence[bytes]]] = {}
    for case in cases:
        expect = case["expect"]
        if "refused" in expect or not expect["placeholders"] or not expect["block_extra_keys"]:
            continue
        request = with_files(request_of(case), urls)
        routing = model.answer(lines.request_of(request))
        held = engine_hashes(expect)
        assert held[-1].hex() == expect["block_hashes"]["sha256"]["last"]
        prompts[held[-1]] = look_up(routing), held
    return list(prompts.values())


def gate(prompts: Prompts, *, in_turn: bool = False) -> float:
    blocks = sum(len(held) for _, held in prompts)
    return hit_rate(
        shuffled_repeats(prompts, REPEATS, seed=1),
        workers=WORKERS,
        capacity=blocks // 2,
        in_turn=in_turn,
    )


def as_it_should(routing: Routing) -> Sequence[bytes]:
    return routing.block_hashes(block_size=BLOCK_SIZE)


def without_identity(routing: Routing) -> Sequence[bytes]:
    return hash_blocks(
        routing.token_ids,
        [None] * (len(routing.token_ids) // BLOCK_SIZE),
        block_size=BLOCK_SIZE,
    )


def with_other_ids(change: Callable[[Any], Any]) -> Callable[[Routing], Sequence[bytes]]:
    def look_up(routing: Routing) -> Sequence[bytes]:
        ids = np.ascontiguousarray(change(routing.token_ids), dtype=np.uint32)
        keys = routing.extra_keys(block_size=BLOCK_SIZE)[: len(ids) // BLOCK_SIZE]
        padded = (*keys, *[None] * (len(ids) // BLOCK_SIZE - len(keys)))
        return hash_blocks(ids, padded, block_size=BLOCK_SIZE)

    return look_up


BROKEN = {
    "identity left out": without_identity,
    "first token dropped": with_other_ids(lambda ids: ids[1:]),
    "one token more": with_other_ids(lambda ids: np.concatenate([ids[:5], ids[5:6], ids[5:]])),
}


@pytest.mark.parametrize("path", IMAGE_VECTORS, ids=lambda path: path.stem)
def test_every_prompt_that_comes_back_is_found(
    path: Path, normalizer: Callable[[str], Normalizer]
) -> None:
    prompts = distinct_prompts(normalizer(path.stem), path, as_it_should)
    assert len(prompts) > 30
    assert gate(prompts) >= BAR
    assert gate(prompts, in_turn=True) < BAR / 2, "the gate can be passed by luck"


@pytest.mark.parametrize("broken", [*BROKEN, "another fill"])
def test_the_gate_notices(broken: str, normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer("small-qwen2-vl")
    fill = next(o.value for o in model.model.origins if o.name == "image_token_id")
    assert isinstance(fill, int)
    # Its configuration names another ID, 151654, that looks like the fill.
    other = with_other_ids(lambda ids: np.where(ids == fill, fill - 1, ids))
    path = next(path for path in IMAGE_VECTORS if path.stem == "small-qwen2-vl")
    assert gate(distinct_prompts(model, path, BROKEN.get(broken, other))) < BAR / 2
