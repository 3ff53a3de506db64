"""Chats about pictures of one size, and what becomes of them behind a router."""

from __future__ import annotations

import asyncio
import base64
import io
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from PIL import Image
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle
from simulated_engine import BLOCK_SIZE

from mmroute import Normalizer
from mmroute.answering.routing import Routing
from mmroute.hashing import hash_blocks
from mmroute.server.ray import BlockHashRouter


@dataclass(frozen=True, slots=True)
class Prompt:
    """One chat.

    Attributes:
        messages: of the request.
        blocks: the low 64 bits of its block hashes, as the engine publishes them.
        by_ids: the same if only token IDs were hashed.
    """

    messages: list[dict[str, Any]]
    blocks: list[int]
    by_ids: list[int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request.

    Attributes:
        second: when it was sent, from the beginning of the run.
        whole: whether its whole prompt was cached.
        node: on which it was answered.
        lost: the error, if it was not answered.
    """

    second: float
    whole: bool = False
    node: str = ""
    lost: str = ""


class TokenIdRouter(BlockHashRouter):
    """Looks prompts up by their token IDs alone, as Ray Serve LLM's KV-aware router does."""

    def look_up(self, routing: Routing, block_size: int) -> tuple[bytes, ...]:
        """Without images, LoRA adapters and cache salts."""
        return id_hashes(routing, block_size)


def id_hashes(routing: Routing, block_size: int) -> tuple[bytes, ...]:
    """Block hashes that cover token IDs alone."""
    ids = routing.token_ids
    return tuple(hash_blocks(ids, [None] * (len(ids) // block_size), block_size=block_size))


def low_bits(hashes: Sequence[bytes]) -> list[int]:
    """As vLLM's events hold them."""
    return [int.from_bytes(block_hash[-8:], "big") for block_hash in hashes]


def pictures(normalizer: Normalizer, count: int) -> list[Prompt]:
    """The same question about as many pictures of one size."""
    prompts = []
    for number in range(count):
        buffer = io.BytesIO()
        Image.new("RGB", (640, 480), (number % 256, 90, 160)).save(buffer, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        content = [
            {"type": "text", "text": "Describe what you see."},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        messages = [{"role": "user", "content": content}]
        routing = normalizer.normalize(messages=messages)
        hashes = routing.block_hashes(block_size=BLOCK_SIZE)
        by_ids = low_bits(id_hashes(routing, BLOCK_SIZE))
        prompts.append(Prompt(messages, hashes.event_ints(), by_ids))
    return prompts


async def ask(
    handle: DeploymentHandle,
    prompts: Sequence[Prompt],
    *,
    at_a_time: int,
    by_ids: bool = False,
) -> list[Answer]:
    """Send requests, so many at a time.

    Args:
        handle: of the engines.
        prompts: in their order.
        at_a_time: requests without an answer.
        by_ids: the engines' events name blocks by their token IDs alone.
    """
    began, free = time.monotonic(), asyncio.Semaphore(at_a_time)

    async def one(prompt: Prompt) -> Answer:
        async with free:
            second = time.monotonic() - began
            published = prompt.by_ids if by_ids else prompt.blocks
            request = SimpleNamespace(messages=prompt.messages)
            try:
                answer = await handle.remote(request, prompt.blocks, published)
            except RayError as error:
                return Answer(second, lost=type(error).__name__)
            return Answer(second, whole=answer["whole"], node=answer["node"])

    return await asyncio.gather(*map(one, prompts))


def repeated(prompts: Sequence[Prompt], repeats: int, seed: int = 0) -> list[Prompt]:
    """Every prompt so many times, in random order."""
    order = list(prompts) * repeats
    random.Random(seed).shuffle(order)
    return order


def hit_rate(answers: Sequence[Answer]) -> float:
    """The part of the requests whose whole prompt was cached where they were sent."""
    return sum(answer.whole for answer in answers) / len(answers)
