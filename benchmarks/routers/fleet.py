"""Workers behind a router: engines on this machine, and what the benchmark sees of them."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from traffic import CHATS, Asked, picture, video

from mmroute import Normalizer, from_openai
from mmroute.engines.vllm.serve_command import parse_command
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.kv_events import BlockIndex, Subscriber, WorkerRank
from mmroute.lab.engines.process import free_port
from mmroute.lab.engines.vllm.environment import NEWEST, engine_environment
from mmroute.lab.engines.vllm.start import start_engine
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport

BLOCK_SIZE: Final = 32
# With its development mode an engine forgets its cache when asked to.
ENGINE: Final = (
    "VLLM_SERVER_DEV_MODE=1 PYTHONHASHSEED=0 vllm serve {model} --max-model-len 8192 "
    "--block-size 32 --num-gpu-blocks-override {blocks} --enable-scale-out"
)
PATIENCE: Final = 30.0  # seconds for the events of a request
_COUNTERS: Final = (
    "vllm:request_success_total", "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
)  # fmt: skip


class RefusedError(Exception):
    """A request was not answered."""


class UnannouncedError(Exception):
    """An engine announced other blocks than those of the request that the client sent."""


class Counted(NamedTuple):
    """A worker's own counters.

    Attributes:
        requests: the requests that it answered.
        hits: the prompt tokens that it took from its cache.
        queries: the prompt tokens that it looked up.
    """

    requests: int
    hits: int
    queries: int


class Worker(Protocol):
    """An engine, with what a router sees of it: `url`, and the endpoint of its `events`."""

    name: str
    url: str
    events: str

    def post(self, path: str, data: bytes) -> dict[str, Any]:
        """The engine's response."""

    def counted(self) -> Counted:
        """The engine's counters."""

    def reset(self) -> None:
        """Empty its cache."""


class Engine:
    """A running vLLM."""

    def __init__(self, name: str, url: str, events: str) -> None:
        self.name, self.url, self.events = name, url, events
        self._transport = Transport(Remote(url, timeout=600.0))

    def post(self, path: str, data: bytes) -> dict[str, Any]:
        return post(self._transport, path, data)

    def counted(self) -> Counted:
        lines = self._transport.request("GET", "/metrics").raw.decode().splitlines()
        values = ([float(x.split()[-1]) for x in lines if x.startswith(c + "{")] for c in _COUNTERS)
        return Counted(*(int(sum(found)) for found in values))

    def reset(self) -> None:
        post(self._transport, "/reset_prefix_cache", b"{}")

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def version(self) -> str:
        """The engine's version."""
        return str(self._transport.request("GET", "/version").body["version"])


def post(transport: Transport, path: str, data: bytes) -> dict[str, Any]:
    """The body of a response.

    Raises:
        RefusedError: its status tells of a failure.
    """
    reply = transport.request("POST", path, data)
    if reply.status not in (200, 201):
        raise RefusedError(f"{transport.name}{path} answered {reply.status}: {reply.message[:300]}")
    return reply.body if isinstance(reply.body, dict) else {}


def first_token(url: str, asked: Asked) -> float:
    """Have a streamed response sent, and read all of it.

    Returns:
        The seconds until its first line, which comes with the first token.

    Raises:
        RefusedError: its status tells of a failure.
    """
    where, data = urlsplit(url), json.dumps({**asked.body, "stream": True}).encode()
    with closing(HTTPConnection(where.hostname or "", where.port, timeout=600)) as connection:
        began = time.monotonic()
        connection.request("POST", asked.path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.readline()
        seconds = time.monotonic() - began
        rest = response.read()
    if response.status != 200:
        raise RefusedError(f"{url}{asked.path} answered {response.status}: {rest[:300]!r}")
    return seconds


class Used(NamedTuple):
    """What a router has taken: processor time in seconds, and the most memory in megabytes."""

    seconds: float
    megabytes: float | None


@dataclass
class Fleet:
    """The workers, and an index of what their events tell.

    Attributes:
        model: a model directory or hub name, for tokenizers.
        served: the engines' name for the model.
        settings: the engines' settings.
        workers: the workers.
        num_blocks: the blocks in each worker's cache.
        loras: the path of each LoRA adapter, by its name.
        index: the blocks that each worker holds.
    """

    model: str
    served: str
    settings: VllmSettings
    workers: Sequence[Worker]
    num_blocks: int
    loras: Mapping[str, str] = field(default_factory=dict)
    block_size: int = BLOCK_SIZE
    index: BlockIndex = field(default_factory=BlockIndex)
    _subscribers: list[Subscriber] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def normalizer(self) -> Normalizer:
        """The model's normalizer."""
        settings = replace(self.settings, loras={**self.settings.loras, **self.loras})
        return Normalizer.from_pretrained(self.model, engine_settings=settings)

    def __enter__(self) -> Self:
        subscribers = (Subscriber(worker.events) for worker in self.workers)
        self._subscribers = [self._stack.enter_context(each) for each in subscribers]
        time.sleep(1)  # what an engine announces before it is connected is lost
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def empty(self) -> None:
        """Empty all caches."""
        for worker in self.workers:
            worker.reset()
        self.index = BlockIndex()

    def counted(self) -> list[Counted]:
        """The counters of all workers."""
        return [worker.counted() for worker in self.workers]

    def answered(self, before: Sequence[Counted]) -> tuple[int, list[Counted]]:
        """The number of the worker that answered one request since then, and all counters."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            now = self.counted()
            new = [a.requests - b.requests for a, b in zip(now, before, strict=True)]
            if sum(new) == 1:
                return new.index(1), now
            time.sleep(0.01)
        raise TimeoutError("no worker, or more than one, answered a request")

    @contextmanager
    def listening(self, lock: threading.Lock) -> Iterator[None]:
        """Enter the events as they come; whoever reads the index meanwhile holds the lock."""
        ended = threading.Event()

        def listen(name: str, subscriber: Subscriber) -> None:
            while not ended.is_set():
                messages = subscriber.receive(0.25)
                with lock:
                    for message in messages:
                        self.index.apply(name, message)

        names = [worker.name for worker in self.workers]
        with ThreadPoolExecutor(len(names)) as threads:
            listeners = [
                threads.submit(listen, *pair) for pair in zip(names, self._subscribers, strict=True)
            ]
            try:
                yield
            finally:
                ended.set()
        for listener in listeners:
            listener.result()

    def await_events(self, number: int, asked: Asked) -> None:
        """Read a worker's events until it holds all blocks of a request that it answered.

        Raises:
            UnannouncedError: it announces other blocks; the router has changed the request.
        """
        name, end = self.workers[number].name, time.monotonic() + PATIENCE
        hashes = self.normalizer.answer(from_openai(asked.body)).block_hashes()
        while self.index.longest_prefixes(hashes).get(WorkerRank(name, 0), 0) < len(hashes):
            if time.monotonic() > end:
                raise UnannouncedError(f"{name} announced no blocks for a request ({asked.kind})")
            for message in self._subscribers[number].receive(0.05):
                self.index.apply(name, message)


@contextmanager
def engines(model: str, count: int, blocks: int, python: Path | None) -> Iterator[Fleet]:
    """A fleet of engines on copies of a model whose weights are few and random."""
    python = python or engine_environment(NEWEST, print)
    # A path would be each engine's own, and pictures have other identities by another string.
    served = Path(model).name if Path(model).is_dir() else model
    command = parse_command(ENGINE.format(model=served, blocks=blocks))
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            bound = f"tcp://*:{free_port()}"  # vllm-router takes no other sockets
            one = start_engine(model, command, python, directory, events=bound, say=print)
            stack.enter_context(one.engine)
            started.append(one)
        workers = []
        for number, one in enumerate(started):
            print(f"an engine is ready after {one.engine.wait(600, lambda _: None):.0f} s")
            events = one.events.replace("*", "127.0.0.1")
            workers.append(Engine(f"worker-{number}", one.engine.url, events))
            stack.callback(workers[-1].close)
        for worker in workers:  # what an engine loads with its first picture and video
            for part in (picture("first"), video("first")):
                messages = [{"role": "user", "content": [part]}]
                body = {"model": served, "messages": messages, "max_tokens": 1}
                with suppress(RefusedError):  # by a model without videos
                    worker.post(CHATS, json.dumps(body).encode())
        settings = VllmSettings.from_args(started[0].command.line)
        yield stack.enter_context(Fleet(model, served, settings, workers, blocks))
