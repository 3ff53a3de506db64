"""`examples/router.py` in front of two simulated workers, which publish events as vLLM does."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kv_aware_routing
import pytest
import router as example
import scripted_publisher
from paths import ROOT
from PIL import Image
from waiting import until

import mmroute
from mmroute.kv_events import WorkerRank

pytestmark = pytest.mark.process

MODEL = "small-qwen2.5-vl"
SIZE = 16
LINK = "https://pictures.example/1.png"


class Engine:
    """A worker with an empty cache, or another process in the place of one that has ended."""

    def __init__(self, normalizer: mmroute.Normalizer, before: Engine | None = None) -> None:
        self.cache = kv_aware_routing.Worker("", 10_000)
        self.prompts: list[list[bytes]] = []
        self.publisher: scripted_publisher.Worker = scripted_publisher.Worker(
            before.publisher if before else None
        )
        engine, port = self, before.server.server_port if before else 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(engine.answer(normalizer, body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self.server: ThreadingHTTPServer = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.url},{self.publisher.endpoint},{self.publisher.replay_endpoint}"

    def answer(self, normalizer: mmroute.Normalizer, body: dict[str, Any]) -> dict[str, Any]:
        cached = 0
        if LINK not in json.dumps(body):  # this engine fetches nothing
            routing = normalizer.answer(mmroute.from_openai(body))
            self.prompts.append(list(routing.block_hashes(block_size=SIZE)))
            blocks, events = self.cache.serve(self.prompts[-1])
            self.publisher.publish(events)
            cached = min(blocks, (len(routing.token_ids) - 1) // SIZE) * SIZE
        return {"usage": {"prompt_tokens_details": {"cached_tokens": cached}}}

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.publisher.close()


def chat(shade: int, question: str) -> dict[str, Any]:
    """A question about a picture of one size, whose colour is `shade`."""
    picture = io.BytesIO()
    Image.new("RGB", (336, 336), (shade, 90, 160)).save(picture, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": question},
    ]
    return {"messages": [{"role": "user", "content": content}]}


@pytest.fixture
def engines(normalizer: Callable[[str], mmroute.Normalizer]) -> Iterator[list[Engine]]:
    fleet = [Engine(normalizer(MODEL)) for _ in range(2)]
    yield fleet
    for engine in fleet:
        engine.end()


def test_a_router_through_the_death_of_a_worker(
    normalizer: Callable[[str], mmroute.Normalizer],
    engines: list[Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(example, "PAUSE", 0.2)
    asyncio.run(asyncio.wait_for(story(normalizer(MODEL), engines), 60))


def test_the_page_shows_this_router() -> None:
    page = (ROOT / "docs" / "tutorial-routing.md").read_text(encoding="utf-8")
    (shown,) = [
        b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Router" in b
    ]
    assert shown in Path(example.__file__).read_text(encoding="utf-8")


async def story(normalizer: mmroute.Normalizer, engines: list[Engine]) -> None:
    router = example.Router(normalizer, SIZE, [engine.address for engine in engines])
    following = asyncio.gather(*map(router.follow, router.subscribers))
    holders: dict[int, str] = {}
    for shade in range(20):  # nobody holds them, and nobody is busy: equals take turns
        holders[shade], _ = await router.answer(chat(shade, "What is it?"))
    assert set(holders.values()) == {engine.url for engine in engines}
    await entered(router, engines)
    for shade, holder in holders.items():  # each goes to its picture
        assert (await router.answer(chat(shade, "Who made it?")))[0] == holder
    assert router.tokens["predicted"] == router.tokens["seen"] > 20 * 100

    link = {"type": "image_url", "image_url": {"url": LINK}}
    await router.answer({"messages": [{"role": "user", "content": [link]}]})
    assert router.inexact == {"image_size_unknown": 1}

    ended, other = engines
    lost = next(shade for shade, holder in holders.items() if holder == ended.url)
    ended.end()
    assert (await router.answer(chat(lost, "Where is it?")))[0] == other.url
    engines[0] = Engine(normalizer, before=ended)  # at the same addresses, and holds nothing
    asked = set()
    for number in itertools.count():
        asked.add((await router.answer(chat(100 + number, "And this?")))[0])
        if len(asked) == 2:  # it gets requests again
            break
        await asyncio.sleep(0.02)
    await entered(router, engines)
    prompt = ended.prompts[0]
    assert router.index.longest_prefixes(prompt)[WorkerRank(ended.url, 0)] < len(prompt)
    await router.answer(chat(lost, "When was it?"))
    assert router.tokens["predicted"] == router.tokens["seen"]
    for subscriber in router.subscribers.values():
        subscriber.close()
    await following


async def entered(router: example.Router, engines: list[Engine]) -> None:
    """Wait until the index has all that the workers announced."""

    def is_known(url: str, prompt: list[bytes]) -> bool:
        return router.index.longest_prefixes(prompt).get(WorkerRank(url, 0)) == len(prompt)

    prompts = [(engine.url, prompt) for engine in engines for prompt in engine.prompts]
    await asyncio.to_thread(until, lambda: all(is_known(*each) for each in prompts))
