r"""A whole router in asyncio: it sends each chat to the worker where it costs least.

    python examples/router.py MODEL "PYTHONHASHSEED=0 vllm serve MODEL --block-size 16" \
      http://w0:8000,tcp://w0:5557,tcp://w0:5558 http://w1:8000,tcp://w1:5557,tcp://w1:5558

It takes the bodies of chats from standard input, one a line, and prints a line for each answer. The
workers publish events (`--kv-events-config`) and count cached tokens
(`--enable-prompt-tokens-details`). Needs pip install '.[events]'.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import httpcore

import mmroute
from mmroute.engines.vllm import VllmSettings
from mmroute.kv_events import BlockIndex, Subscriber, WorkerRank
from mmroute.kv_events.holders import Blocks
from mmroute.kv_events.policy import Prompt, Tokens, WorkerState, pick

PAUSE = 5.0  # seconds for which a worker that does not answer gets no request


class Router:
    """Knows what each worker holds, and how many requests it works on."""

    def __init__(self, normalizer: mmroute.Normalizer, size: int, workers: list[str]) -> None:
        self.normalizer, self.size = normalizer, size
        self.subscribers = {
            url: Subscriber(events, replay_endpoint=replays)
            for url, events, replays in (each.split(",") for each in workers)
        }
        self.index = BlockIndex()
        self.running = dict.fromkeys(self.subscribers, 0)
        self.away = dict.fromkeys(self.subscribers, 0.0)  # until this time
        self.inexact: Counter[str] = Counter()  # requests, by reason
        self.tokens: Counter[str] = Counter()  # cached ones: predicted by us, seen by the engine
        self.client = httpcore.AsyncConnectionPool()

    async def follow(self, url: str) -> None:
        """Keep the index as the worker's cache is. A new process of the worker holds nothing."""
        async for message in self.subscribers[url]:
            self.index.apply(url, message)

    async def answer(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The worker that was picked, and its answer."""
        hashes, prompt = [], Prompt(Tokens(0), Tokens(self.size))
        try:
            routing = self.normalizer.answer(mmroute.from_openai(body))
            hashes = list(routing.block_hashes(block_size=self.size))
            prompt = Prompt.of(routing, self.size)
        except mmroute.InexactError as error:  # by load, then
            self.inexact[error.reason] += 1
        while True:
            found = self.index.longest_prefixes(hashes)
            held = {url: found.get(WorkerRank(url, 0), Blocks(0)) for url in self.running}
            there = [url for url in self.running if self.away[url] < time.monotonic()]
            states = {  # shuffled, so that equals take turns
                url: WorkerState(held[url], held[url], self.running[url])
                for url in random.sample(there, len(there))
            }
            url = pick(prompt, states).worker  # a ValueError if no worker is left
            self.running[url] += 1
            try:
                answered = await self.client.request(
                    "POST", f"{url}/v1/chat/completions", content=json.dumps(body).encode(),
                    headers={"Content-Type": "application/json"},
                )  # fmt: skip
            except (httpcore.NetworkError, httpcore.RemoteProtocolError):
                self.away[url] = time.monotonic() + PAUSE
                continue
            finally:
                self.running[url] -= 1
            answer = json.loads(answered.content)
            if hashes and "usage" in answer:  # the last token is always computed
                seen = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                most = (prompt.tokens - 1) // self.size
                self.tokens += Counter(predicted=min(held[url], most) * self.size, seen=seen)
            return url, answer


async def main() -> None:
    """Route the chats of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("engine", help="its command line")
    parser.add_argument("worker", nargs="+", help="URL,EVENTS,REPLAYS")
    given = parser.parse_args()
    settings = VllmSettings.from_args(given.engine)
    normalizer = mmroute.Normalizer.from_pretrained(given.model, engine_settings=settings)
    router = Router(normalizer, settings.block_size or 16, given.worker)
    following = asyncio.gather(*map(router.follow, router.subscribers))
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(*await router.answer(json.loads(line)), dict(router.tokens), dict(router.inexact))
    for subscriber in router.subscribers.values():
        subscriber.close()
    await following


if __name__ == "__main__":
    asyncio.run(main())
