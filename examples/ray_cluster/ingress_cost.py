"""Processor time of a request at the ingress of Ray Serve LLM: its own tokenizer, and mmroute's.

    python examples/ray_cluster/ingress_cost.py MODEL

Needs vLLM, as Ray Serve LLM does; no GPU. Both tokenizers are made of one LLMConfig, and answer the
same requests in turn. No two requests share a text or a picture.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import random
import time
from collections.abc import Sequence
from typing import Any

from PIL import Image
from ray.llm._internal.serve.routing_policies.kv_aware.vllm.tokenizer import Tokenizer
from ray.serve.llm import LLMConfig

from mmroute.server.ray import IngressTokenizer
from mmroute.server.ray.tokenizer import source_of

REQUESTS = 12
BLOCK_SIZE = 16
MIXES = {
    "1,000 words": (1000, 0),
    "100 words, a picture of 1280x720": (100, 1),
    "100 words, four pictures": (100, 4),
}
_NANO = 1e-6  # to milliseconds


def request(words: int, pictures: int, chance: random.Random) -> dict[str, Any]:
    """A chat with random words and photographs, as far as noise looks like one."""
    text = " ".join(f"w{chance.randrange(10**6)}" for _ in range(words))
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for _ in range(pictures):
        small = Image.frombytes("RGB", (160, 90), chance.randbytes(160 * 90 * 3))
        buffer = io.BytesIO()
        small.resize((1280, 720), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
        url = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return {"model": "m", "messages": [{"role": "user", "content": parts}]}


async def milliseconds(tokenizer: Any, requests: Sequence[dict[str, Any]]) -> tuple[float, Any]:
    """Processor time of one request, of all threads, and what was answered."""
    began = time.process_time_ns()
    answers = [await tokenizer.tokenize(one) for one in requests]
    return (time.process_time_ns() - began) * _NANO / len(requests), answers


async def compare(model: str) -> None:
    """Print a row for each mix."""
    config = LLMConfig(model_loading_config={"model_id": "m", "model_source": model})
    own = Tokenizer(config)
    ours = IngressTokenizer(source_of(config), own)
    chance = random.Random(0)
    print(f"{'processor time of a request':36} {'Ray':>10} {'mmroute':>10} {'and hashes':>11}")
    for name, mix in MIXES.items():
        await own.tokenize(request(*mix, chance))  # what is imported with the first one
        await ours.tokenize(request(*mix, chance))
        requests = [request(*mix, chance) for _ in range(REQUESTS)]
        best: dict[str, float] = {}
        for _ in range(3):
            for label, tokenizer in (("ray", own), ("mmroute", ours)):
                changed = [request(*mix, chance) for _ in requests]
                taken, _ = await milliseconds(tokenizer, changed)
                best[label] = min(taken, best.get(label, taken))
        _, expected = await milliseconds(own, requests)
        _, found = await milliseconds(ours, requests)
        if found != expected:
            raise SystemExit("mmroute and Ray give different token IDs")
        began = time.process_time_ns()
        for answer in found:
            answer.routing.block_hashes(block_size=BLOCK_SIZE)
        hashes = (time.process_time_ns() - began) * _NANO / len(found)
        row = f"{best['ray']:7.2f} ms {best['mmroute']:7.2f} ms {hashes:8.2f} ms"
        print(f"{name:36} {row}", flush=True)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a directory or hub name")
    asyncio.run(compare(parser.parse_args().model))


if __name__ == "__main__":
    main()
