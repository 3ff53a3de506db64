"""A router while its fleet is upgraded: workers of two versions of vLLM, and one of SGLang.

    python examples/mixed_fleet.py MODEL

MODEL is of a family that is covered for SGLang, such as Qwen/Qwen2.5-VL-3B-Instruct. Each kind of
worker gives other hashes to the same prompt, and has blocks of another size. The router asks for
the hashes of every kind, and looks for each worker in one index under its own. What workers hold is
compared in tokens.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

import mmroute
from mmroute.hashing import BlockHashes, PageHashes, image_hash
from mmroute.kv_events import BlockIndex, BlockStored, EventBatch, WorkerRank
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import Prompt, WorkerState, pick

SIZES = {"vllm==0.33": 16, "vllm==0.28": 32, "sglang": 64}  # tokens in a block, by kind of worker
SEED = "0"  # PYTHONHASHSEED of every worker of vLLM: 0.28 draws one at random otherwise


@dataclass(frozen=True)
class Asked:
    """A request as one kind of worker has it."""

    prompt: Prompt
    hashes: BlockHashes | PageHashes


def asked_of_kinds(routings: Sequence[mmroute.Routing]) -> Mapping[str, Asked]:
    """One request as each kind of worker has it."""
    asked = {}
    for (kind, size), routing in zip(SIZES.items(), routings, strict=True):
        pages = kind == "sglang"
        hashes = (
            routing.page_hashes(size) if pages else routing.block_hashes(block_size=size, seed=SEED)
        )
        asked[kind] = Asked(Prompt.of(routing, size), hashes)
    return asked


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
    """For each request: its worker, and how many tokens of it that one held of how many."""
    normalizer = mmroute.Normalizer.from_pretrained(model, backend="vllm==0.33")
    others = normalizer.matching("vllm==0.28"), normalizer.matching("sglang")
    workers = {"new-0": "vllm==0.33", "old-0": "vllm==0.28", "sglang-0": "sglang"}
    index, sent = BlockIndex(), dict.fromkeys(workers, 0)
    report: list[tuple[str, int, int]] = []
    for text in ("Describe what you see. " * 20, "Which colour is it? " * 20):
        for color in (10, 130, 250):
            kinds = asked_of_kinds(normalizer.normalize_with(*others, **question(color, text)))
            found = {kind: index.longest_prefixes(asked.hashes) for kind, asked in kinds.items()}
            held = {
                name: found[kind].get(WorkerRank(name, 0), Blocks(0))
                for name, kind in workers.items()
            }
            states = {
                name: WorkerState(held[name], held[name], sent[name], prompt=kinds[kind].prompt)
                for name, kind in workers.items()
            }
            name = pick(kinds["vllm==0.33"].prompt, states).worker
            asked = kinds[workers[name]]
            report.append((name, held[name] * asked.prompt.block_size, asked.prompt.tokens))
            sent[name] += 1
            index.apply(name, stored(asked))
    return report


def stored(asked: Asked) -> EventBatch:
    """What a worker announces once it has computed a prompt."""
    numbers = tuple(asked.hashes.event_ints())
    event = BlockStored(numbers, None, (), asked.prompt.block_size, None, "GPU", None)
    return EventBatch(time.time(), (event,))


def main() -> None:
    """Print where each request went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    try:
        report = run(parser.parse_args().model)
    except mmroute.ModelError as error:
        parser.error(str(error))
    for worker, held, total in report:
        print(f"{worker:9} held {held:4} of {total} tokens")


if __name__ == "__main__":
    main()
