"""Routers that run in this process: rules of others, restated or imported, and mmroute.

Each makes a function that picks a worker for a request, and may say what it credits there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from fleet import Fleet
from traffic import Asked

from mmroute import from_openai
from mmroute.kv_events import WorkerRank
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import Prompt, Weights, WorkerState, pick

WEIGHTS: Final = Weights(request=1.0)  # requests come one by one: those sent stand for load


class Choice(NamedTuple):
    """A router's decision.

    Attributes:
        worker: the worker's number.
        credited: the tokens that it expects in the worker's cache; None where it does not tell.
        share: the same as a share of the prompt, of a router that has no tokens.
    """

    worker: int
    credited: float | None = None
    share: float | None = None


Rule: TypeAlias = Callable[[Asked, Sequence[int]], Choice]
"""Picks a worker for a request; the second argument has the requests that each worker has had."""


def round_robin(_: Fleet) -> Rule:
    """The workers one after the other."""
    return lambda _, sent: Choice(sum(sent) % len(sent))


def session(_: Fleet) -> Rule:
    """All turns of a conversation go to one worker."""
    return lambda asked, sent: Choice(asked.session % len(sent))


def production_stack(_: Fleet) -> Rule:
    """The prefix-aware router of vLLM's production-stack, which has no package in the index.

    A trie over chunks of 128 characters; of the workers with the longest match, the one with the
    fewest requests. Source: vllm-project/production-stack, src/vllm_router/prefix/hashtrie.py and
    routers/routing_logic.py (`PrefixAwareRouter`).
    """
    chunk = 128
    workers_of: dict[str, set[int]] = {}

    def rule(asked: Asked, sent: Sequence[int]) -> Choice:
        lines = (f"<|{m['role']}|>\n{_text(m, '[{}]', chr(10))}" for m in _messages(asked))
        text = "\n<|message-break|>\n".join(lines)
        prefixes = [text[:end] for end in range(chunk, len(text) + chunk, chunk)]
        candidates, matched = set(range(len(sent))), 0
        for prefix in prefixes:
            if not (both := candidates & workers_of.get(prefix, set())):
                break
            candidates, matched = both, matched + chunk
        worker = min(sorted(candidates), key=sent.__getitem__)
        for prefix in prefixes:
            workers_of.setdefault(prefix, set()).add(worker)
        return Choice(worker, share=min(1.0, matched / len(text)))

    return rule


def llm_d_approximate(fleet: Fleet) -> Rule:
    """llm-d's default: the approximate prefix producer on estimated tokens, and its scorer.

    Four bytes count as a token. An image is its hash, repeated once for each 1,024 pixels. Chained
    hashes of blocks are kept for each worker, as many as it has blocks. The worker with the
    largest share of them wins. Source: llm-d/llm-d-router, pkg/epp/framework/plugins/requestcontrol
    /dataproducer/tokenizer/estimate.go, mm_estimate.go, and ../approximateprefix/hashing.go.
    """
    draw = random.Random(0)
    indexes: list[OrderedDict[int, None]] = [OrderedDict() for _ in fleet.workers]

    def rule(asked: Asked, _: Sequence[int]) -> Choice:
        size = 4 * fleet.block_size
        stream = _estimated(asked)
        parent = hash((asked.body["model"], asked.body.get("cache_salt", "")))
        hashes = []
        for at in range(0, len(stream), size):
            parent = hash((stream[at : at + size], parent))
            hashes.append(parent)
        held = [_leading(hashes, index) for index in indexes]
        best = [worker for worker, blocks in enumerate(held) if blocks == max(held)]
        worker = draw.choice(best)
        for block in hashes:
            indexes[worker][block] = None
            indexes[worker].move_to_end(block)
        while len(indexes[worker]) > fleet.num_blocks:
            indexes[worker].popitem(last=False)
        return Choice(worker, share=held[worker] / len(hashes))

    return rule


def ray_prefix_affinity(fleet: Fleet) -> Rule:
    """Ray Serve's `PrefixCacheAffinityRouter`: its own tree, its rule restated without a cluster.

    Source: Ray 2.60.0, llm/_internal/serve/routing_policies/prefix_aware/prefix_aware_router.py.
    """
    from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_tree import PrefixTree

    tree = PrefixTree()
    names = [worker.name for worker in fleet.workers]
    tree.add_tenants(names, time.time())

    def rule(asked: Asked, _: Sequence[int]) -> Choice:
        text = "".join(_text(message) for message in _messages(asked))
        matched, tenants = tree.prefix_match(text, names)
        share = len(matched) / len(text)
        if share < 0.1 or not tenants:  # its `match_rate_threshold`
            tenants, share = tree.get_smallest_tenants() or names, 0.0
        tree.insert(text, tenants[0], time.time())
        return Choice(names.index(tenants[0]), share=share)

    return rule


def mmroute(fleet: Fleet, weights: Weights = WEIGHTS) -> Rule:
    """The worker where the prompt costs least, by the engine's own block hashes."""
    normalizer, index = fleet.normalizer, fleet.index

    def rule(asked: Asked, sent: Sequence[int]) -> Choice:
        routing = normalizer.answer(from_openai(asked.body))
        hashes = routing.block_hashes()
        held = index.longest_prefixes(hashes)
        states = {}
        for number, worker in enumerate(fleet.workers):
            blocks = held.get(WorkerRank(worker.name, 0), 0)
            states[number] = WorkerState(Blocks(blocks), Blocks(blocks), sent[number])
        choice = pick(Prompt.of(routing, hashes.block_size), states, weights)
        tokens = index.reused_tokens(
            hashes, num_tokens=len(routing.token_ids), block_size=hashes.block_size
        )
        name = fleet.workers[choice.worker].name
        return Choice(choice.worker, tokens.get(WorkerRank(name, 0)) or 0)

    return rule


def _messages(asked: Asked) -> list[Mapping[str, Any]]:
    """The messages; a completion's prompt stands for one."""
    return asked.body.get("messages") or [{"role": "user", "content": asked.body["prompt"]}]


def _text(message: Mapping[str, Any], other: str = "", between: str = "") -> str:
    """A message's text; `other` stands for each part that is none."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return between.join(part.get("text") or other.format(part["type"]) for part in content)


def _estimated(asked: Asked) -> bytes:
    """The bytes that llm-d takes for tokens."""
    if "prompt" in asked.body:
        return str(asked.body["prompt"]).encode()
    out = json.dumps(asked.body["tools"]).encode() if asked.body.get("tools") else b""
    for message in _messages(asked):
        out += message["role"].encode()
        if isinstance(message["content"], str):
            out += message["content"].encode()
            continue
        for part in message["content"]:
            if part["type"] == "text":
                out += part["text"].encode()
                continue
            url = part[part["type"]]["url"]
            out += bytes(-len(out) % 4)
            token = hashlib.blake2b(url.encode(), digest_size=4).digest()
            out += token * _placeholders(part["type"], url)
    return out + bytes(-len(out) % 4)


@cache
def _placeholders(kind: str, url: str) -> int:
    width, height = 640, 360
    if kind == "image_url":  # videos are taken for ten seconds of the default size
        width, height = struct.unpack(">II", base64.b64decode(url.partition(",")[2][:48])[16:24])
    return width * height // 1024 * (1 if kind == "image_url" else 10)


def _leading(hashes: Sequence[int], held: Mapping[int, None]) -> int:
    return next((at for at, block in enumerate(hashes) if block not in held), len(hashes))
