"""A KV-aware router in one file: mmroute gives the block hashes, workers publish theirs.

    python examples/kv_aware_routing.py [MODEL]

Four workers with vLLM-shaped block caches publish vLLM's KV events; a router reads the events,
and sends each request to the worker that holds most of its prompt. The requests are
conversations about images, whose prompts come back in random order. Beside it, the same requests
are dealt out in turn.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import random
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from PIL import Image

import mmroute
from mmroute.kv_events import BlockIndex, WorkerRank
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import Prompt, Tokens, Weights, WorkerState, pick

BLOCK_SIZE = 16
# The workers of this example answer at once. The requests that they have had stand for load, and
# decide between workers that hold the same.
WEIGHTS = Weights(request=0.01)


@dataclass
class Worker:
    """An inference engine, reduced to its prefix cache.

    Attributes:
        name: under which the router knows it.
        capacity: blocks in its cache; the least recently used ones are evicted.
    """

    name: str
    capacity: int
    blocks: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def serve(self, prompt: Sequence[bytes]) -> tuple[int, bytes]:
        """Compute what is not cached of a prompt, given by its block hashes.

        Returns:
            How many blocks were cached, and the events, encoded as vLLM 0.33.0 encodes them.
        """
        cached = len(list(itertools.takewhile(self.blocks.__contains__, prompt)))
        for block in prompt:
            self.blocks[block] = None
        for block in reversed(prompt):  # a block is never older than those that follow it
            self.blocks.move_to_end(block)
        removed = [self.blocks.popitem(last=False)[0] for _ in range(self._excess())]
        stored = {
            "type": "BlockStored",
            "block_hashes": list(prompt[cached:]),
            "parent_block_hash": prompt[cached - 1] if cached else None,
            "token_ids": [],
            "block_size": BLOCK_SIZE,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
        }
        evicted = {"type": "BlockRemoved", "block_hashes": removed, "medium": "GPU"}
        batch = [time.time(), [stored, evicted], 0]
        return cached, msgspec.msgpack.encode(batch)

    def _excess(self) -> int:
        return max(0, len(self.blocks) - self.capacity)


class Router:
    """Knows from events what each worker holds, and picks the one where a prompt costs least."""

    def __init__(self, workers: Iterable[str]) -> None:
        self.index = BlockIndex()
        self.served = dict.fromkeys(workers, 0)

    def pick(self, hashes: Sequence[bytes]) -> tuple[str, int]:
        """The worker for a prompt, given by its block hashes; and how many of them it holds."""
        lengths = self.index.longest_prefixes(hashes)
        held = {name: lengths.get(WorkerRank(name, 0), Blocks(0)) for name in self.served}
        states = {
            name: WorkerState(held=held[name], at_hand=held[name], requests=served)
            for name, served in self.served.items()
        }
        # One token more than the blocks: what is behind the last full block is not known here.
        prompt = Prompt(Tokens(len(hashes) * BLOCK_SIZE + 1), Tokens(BLOCK_SIZE))
        best = pick(prompt, states, WEIGHTS).worker
        self.served[best] += 1
        return best, held[best]


def hit_rate(
    requests: Iterable[tuple[Sequence[bytes], Sequence[bytes]]],
    *,
    workers: int,
    capacity: int,
    in_turn: bool = False,
) -> float:
    """The part of the requests whose whole prompt was cached where they were sent.

    Routed requests count only where the router knew: luck is no hit.

    Args:
        requests: for each, the block hashes that the router looks up, and those of the engine.
        workers: how many.
        capacity: blocks in each one's cache.
        in_turn: deal the requests out in turn, instead of routing them.
    """
    fleet = {name: Worker(name, capacity) for name in (f"worker-{i}" for i in range(workers))}
    router = Router(fleet)
    turns = itertools.cycle(fleet)
    hits = total = 0
    for looked_up, held_by_engine in requests:
        name, expected = (next(turns), len(looked_up)) if in_turn else router.pick(looked_up)
        cached, events = fleet[name].serve(held_by_engine)
        router.index.apply(name, events)
        hits += expected == cached == len(held_by_engine)
        total += 1
    return hits / total


def shuffled_repeats(
    prompts: Sequence[tuple[Sequence[bytes], Sequence[bytes]]], repeats: int, seed: int
) -> list[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Every prompt `repeats` times, in random order."""
    order = list(prompts) * repeats
    random.Random(seed).shuffle(order)
    return order


def demo_prompts(normalizer: mmroute.Normalizer, count: int) -> Iterator[Sequence[bytes]]:
    """Block hashes of prompts about different images, asked with the same words."""
    for i in range(count):
        buffer = io.BytesIO()
        Image.new("RGB", (640, 480), (i % 256, 90, 160)).save(buffer, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        content = [
            {"type": "text", "text": "Describe what you see."},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        routing = normalizer.normalize(messages=[{"role": "user", "content": content}])
        yield routing.block_hashes(block_size=BLOCK_SIZE)


def main() -> None:
    """Print both hit rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="pixtral-12b-2409")
    model = parser.parse_args().model
    normalizer = mmroute.Normalizer.from_pretrained(model, model_id=model)
    # No engine runs here: the workers hold what mmroute computes as well. That these are the
    # engine's own hashes is what tests/core/conformance/test_conformance.py proves with vLLM's
    # answers.
    prompts = [(hashes, hashes) for hashes in demo_prompts(normalizer, 40)]
    repeats, workers = 5, 4
    blocks = sum(len(hashes) for hashes, _ in prompts)
    requests = shuffled_repeats(prompts, repeats, seed=0)
    capacity = blocks // 2
    print(f"{len(prompts)} prompts, {blocks} blocks, each asked {repeats} times, {workers} workers")
    for title, in_turn in (("dealt out in turn", True), ("by overlap", False)):
        rate = hit_rate(requests, workers=workers, capacity=capacity, in_turn=in_turn)
        print(f"{title:18} {rate:6.1%} of all prompts were cached")
    print(f"{'at best':18} {1 - 1 / repeats:6.1%}")


if __name__ == "__main__":
    main()
