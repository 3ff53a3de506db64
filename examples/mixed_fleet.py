"""A router while its fleet is upgraded: workers of two versions of vLLM, and one of SGLang.

    python examples/mixed_fleet.py MODEL

MODEL is of a family that is covered for SGLang, such as Qwen/Qwen2.5-VL-3B-Instruct. Each kind of
worker gives other hashes to the same prompt. The router computes a prompt once, asks for the
hashes of every kind, and looks for each worker under its own.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

import mmroute
from mmroute.hashing import image_hash

PAGE_SIZE = 16
SEED = "0"  # PYTHONHASHSEED of every worker: vLLM 0.28 draws one at random otherwise
WORTH_FOLLOWING = 0.5

Hashes = Sequence[bytes]


@dataclass
class Worker:
    """An inference engine, reduced to its prefix cache.

    Attributes:
        name: under which the router knows it.
        kind: its engine and version.
        blocks: the hashes of what it holds.
    """

    name: str
    kind: str
    blocks: set[bytes] = field(default_factory=set)

    def held(self, prompt: Hashes) -> int:
        """How many blocks from the beginning it holds."""
        missing = (i for i, block in enumerate(prompt) if block not in self.blocks)
        return next(missing, len(prompt))


def hashes_of_kinds(routings: Sequence[mmroute.Routing]) -> Mapping[str, Hashes]:
    """What each kind of worker publishes for one request."""
    new, older, sglang = routings
    return {
        "vllm==0.33": new.block_hashes(seed=SEED),
        "vllm==0.28": older.block_hashes(seed=SEED),
        "sglang": sglang.page_hashes(PAGE_SIZE),
    }


def pick(workers: Sequence[Worker], hashes: Mapping[str, Hashes]) -> Worker:
    """The worker that holds most of a prompt; the emptiest, if none holds enough of it."""
    best = max(workers, key=lambda worker: worker.held(hashes[worker.kind]))
    prompt = hashes[best.kind]
    if best.held(prompt) >= WORTH_FOLLOWING * len(prompt):
        return best
    return min(workers, key=lambda worker: len(worker.blocks))


def question(color: int, text: str) -> dict[str, Any]:
    """A chat about a picture. Its name is what SGLang tells pictures apart by (`mm_hashes`)."""
    buffer = io.BytesIO()
    Image.new("RGB", (640, 480), (color, 90, 160)).save(buffer, "PNG")
    picture = mmroute.read_image(buffer.getvalue())
    content = [{"type": "image"}, {"type": "text", "text": text}]
    return {
        "messages": [{"role": "user", "content": content}],
        "images": [picture],
        "mm_hashes": [f"{image_hash(f'picture-{color}'):016x}"],
    }


def run(model: str) -> list[tuple[str, int, int]]:
    """For each request: its worker, and how many of its blocks that one held of how many."""
    normalizer = mmroute.Normalizer.from_pretrained(model, backend="vllm==0.33")
    others = normalizer.matching("vllm==0.28"), normalizer.matching("sglang")
    workers = [
        Worker("new-0", "vllm==0.33"), Worker("old-0", "vllm==0.28"), Worker("sglang-0", "sglang"),
    ]  # fmt: skip
    report = []
    for text in ("Describe what you see.", "Which colour is it?"):
        for color in (10, 130, 250):
            routings = normalizer.normalize_with(*others, **question(color, text))
            hashes = hashes_of_kinds(routings)
            worker = pick(workers, hashes)
            own = hashes[worker.kind]
            report.append((worker.name, worker.held(own), len(own)))
            worker.blocks.update(own)
    return report


def main() -> None:
    """Print where each request went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    try:
        report = run(parser.parse_args().model)
    except mmroute.ModelError as error:
        parser.error(str(error))
    for worker, held, total in report:
        print(f"{worker:9} held {held:4} of {total} blocks")


if __name__ == "__main__":
    main()
