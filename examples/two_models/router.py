"""A KV-aware router that knows no tokenizer: it asks `mmroute serve` over HTTP.

    python examples/two_models/router.py [--url http://127.0.0.1:8000]

Every model that is served has three workers with vLLM-shaped block caches, which publish vLLM's KV
events. The requests are conversations about images, the same for every model, all mixed. Each is
rendered once; the router looks its block hashes up and sends it to the worker that holds most of
them. Beside it, the same requests are dealt out in turn. README.md in this directory walks through.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import io
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))

from kv_aware_routing import BLOCK_SIZE, Router, Worker

RENDER = f"/v1/chat/completions/render?block_size={BLOCK_SIZE}"
WORKERS = ("worker-0", "worker-1", "worker-2")
CONVERSATIONS = 20
TURNS = 4
# Of all different blocks of a model, this part fits into each worker.
CACHED_PART = 0.5
SYSTEM = "You are a careful assistant who describes pictures briefly, and says so when unsure."
QUESTIONS = ("What is in this picture?", "Which colours?", "Any text in it?", "Thank you. A title?")
ANSWER = "A picture without people. I see soft patches in several tones, and nothing else."


class Render:
    """The one thing a router needs of mmroute: a chat in, block hashes out."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise SystemExit(f"--url must be http://HOST:PORT, found {url!r}")
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def models(self) -> list[str]:
        """Every served name."""
        return [card["id"] for card in self._ask("GET", "/v1/models", None)["data"]]

    def block_hashes(self, chat: Mapping[str, Any]) -> list[bytes]:
        """The hashes of the full blocks of a prompt, as vLLM computes them."""
        answer = self._ask("POST", RENDER, {**chat, "mm_payload": "none"})
        return [bytes.fromhex(digits) for digits in answer["block_hashes"]]

    def _ask(self, method: str, path: str, body: object) -> Any:
        raw = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, raw, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
        except OSError as error:
            raise SystemExit(f"no mmroute serve to be reached: {error}") from None
        text = response.read()
        if response.status != http.client.OK:
            # A router would send such a request to any worker. Here all have an exact answer.
            raise SystemExit(f"{path}: {response.status} {text.decode()}")
        return json.loads(text)


class Fleet:
    """The workers of one model, twice: behind the router, and dealt out in turn.

    Attributes:
        router: knows from events what each worker holds.
        requests: how many were served.
        blocks: of all their prompts.
        foreign: of them, those that another model's workers hold as well.
        hits: blocks that were cached where they were sent, by way of sending; the ceiling is one
            worker that never forgets.
    """

    def __init__(self, capacity: int) -> None:
        self.router = Router(WORKERS)
        self._routed = {name: Worker(name, capacity) for name in WORKERS}
        self._in_turn = itertools.cycle([Worker(name, capacity) for name in WORKERS])
        self._endless = Worker("endless", sys.maxsize)
        self.requests = self.blocks = self.foreign = 0
        self.hits = dict.fromkeys(("in turn", "routed", "ceiling"), 0)

    def serve(self, prompt: Sequence[bytes], others: Sequence[Fleet]) -> None:
        """Send one request, given by its block hashes, all three ways."""
        held = [other.router.index.longest_prefixes(prompt) for other in others]
        self.foreign += max((n for lengths in held for n in lengths.values()), default=0)
        name, _ = self.router.pick(prompt)
        cached, events = self._routed[name].serve(prompt)
        self.router.index.apply(name, events)
        self.hits["routed"] += cached
        self.hits["in turn"] += next(self._in_turn).serve(prompt)[0]
        self.hits["ceiling"] += self._endless.serve(prompt)[0]
        self.requests += 1
        self.blocks += len(prompt)

    def rate(self, way: str) -> float:
        """The part of all blocks that was cached."""
        return self.hits[way] / self.blocks


def picture(seed: int) -> str:
    """A JPEG of 640x480, as a data URL; another one for each seed."""
    noise = random.Random(seed).randbytes(40 * 30 * 3)
    buffer = io.BytesIO()
    Image.frombytes("RGB", (40, 30), noise).resize((640, 480)).save(buffer, "JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def conversation(seed: int) -> Iterator[dict[str, Any]]:
    """The requests of one conversation: each holds all that was said before."""
    image = {"type": "image_url", "image_url": {"url": picture(seed)}}
    first = [image, {"type": "text", "text": QUESTIONS[0]}]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": first},
    ]
    for question in QUESTIONS[1:TURNS]:
        yield {"messages": list(messages)}
        messages += [
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": question},
        ]
    yield {"messages": messages}


def requests(models: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The same conversations with each model, mixed at random; turns stay in their order."""
    going = {(model, seed): conversation(seed) for model in models for seed in range(CONVERSATIONS)}
    order = list(going) * TURNS
    random.Random(0).shuffle(order)
    for model, seed in order:
        yield {"model": model, **next(going[model, seed])}


def simulate(prompts: Sequence[tuple[str, Sequence[bytes]]]) -> dict[str, Fleet]:
    """Send every request, by its model and block hashes; and say what its workers had of it."""
    different: dict[str, set[bytes]] = {}
    for model, prompt in prompts:
        different.setdefault(model, set()).update(prompt)
    fleets = {model: Fleet(int(len(blocks) * CACHED_PART)) for model, blocks in different.items()}
    for model, prompt in prompts:
        fleets[model].serve(prompt, [fleet for other, fleet in fleets.items() if other != model])
    return fleets


def main() -> None:
    """Print what was reached for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of mmroute serve")
    prompts: list[tuple[str, Sequence[bytes]]] = []
    seconds: dict[str, list[float]] = {}
    with contextlib.closing(Render(parser.parse_args().url)) as render:
        for chat in requests(render.models()):
            started = time.perf_counter()
            prompts.append((chat["model"], render.block_hashes(chat)))
            seconds.setdefault(chat["model"], []).append(time.perf_counter() - started)
    print(f"{len(WORKERS)} workers for each model; each holds {CACHED_PART:.0%} of its blocks")
    columns = ("in turn", "routed", "ceiling")
    print(f"{'model':20} requests  blocks {''.join(f'{c:>9}' for c in columns)}  foreign  render")
    for model, fleet in simulate(prompts).items():
        rates = "".join(f"{fleet.rate(column):>9.1%}" for column in columns)
        milliseconds = statistics.median(seconds[model]) * 1e3
        print(f"{model:20} {fleet.requests:>8} {fleet.blocks:>7} {rates} {fleet.foreign:>8} "
              f"{milliseconds:>4.1f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
