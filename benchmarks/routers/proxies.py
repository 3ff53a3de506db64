"""Routers from the package index, each a process out of an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fleet import Fleet, RefusedError, Used, first_token, post
from rules import Choice
from traffic import Asked

from mmroute import from_openai
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError
from mmroute.lab.engines.environment import cache_directory
from mmroute.lab.engines.process import free_port
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport

WAIT: Final = 120.0  # seconds until a router is ready
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_NOTHING: Final = "Prefix input preparation unavailable"  # of a request with media
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Package:
    """A router of the package index.

    Attributes:
        requirement: what pip installs, with its version.
        words: the arguments behind the environment's Python, for a fleet and two ports.
        credit: finds the credit in its log. A match without a number is a credit of nothing. None
            for a router that does not tell.
        unit: what the number is: `Choice.credited` or `Choice.share`.
    """

    requirement: str
    words: Callable[[Fleet, int, int], list[str]]
    credit: str | None = None
    unit: str = "share"

    def python(self) -> Path:
        """The environment's Python; the environment is made if there is none."""
        root = cache_directory().parent / "routers" / self.requirement
        python = root / "bin" / "python"
        if not (root / "ready").is_file():
            venv.create(root, with_pip=True, symlinks=True, clear=True)
            pip: list[str | Path] = [python, "-m", "pip", "install", "-q", self.requirement]
            subprocess.run(pip, check=True)
            (root / "ready").touch()
        return python


def used_by(process: int | str) -> Used:
    """What a process and its threads have taken."""
    root = Path("/proc", str(process))
    times = (root / "stat").read_text().rpartition(")")[2].split()[11:13]
    (most,) = re.findall(r"VmHWM:\s+(\d+)", (root / "status").read_text())
    return Used(sum(map(int, times)) / _TICKS, int(most) / 1024)


class Process:
    """A router's process and its log."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._log = log.open("wb")
        self._lines = log.open("rb")
        self._process = subprocess.Popen(
            words, stdout=self._log, stderr=self._log, env={**os.environ, "PYTHONPATH": ""}
        )

    def wait(self, url: str, path: str) -> None:
        """Wait until it answers."""
        end = time.monotonic() + WAIT
        with closing(Transport(Remote(url, timeout=5.0))) as transport:
            while time.monotonic() < end and self._process.poll() is None:
                with suppress(InexactError):
                    if transport.request("GET", path).status == 200:
                        return
                time.sleep(0.2)
        raise RuntimeError(f"the router did not start: {self.new_lines()[-1000:]}")

    def new_lines(self) -> str:
        """What it has written since the last call."""
        return _COLOUR.sub("", self._lines.read().decode(errors="replace"))

    def used(self) -> Used:
        """What it and its threads have taken."""
        return used_by(self._process.pid)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._lines.close()


class Proxy:
    """A router that forwards requests to the workers itself."""

    def __init__(self, package: Package, process: Process, url: str) -> None:
        self._process, self._package, self._url = process, package, url
        self._transport = Transport(Remote(url, timeout=600.0))
        self.used, self.close = process.used, self._transport.close

    def send(self, asked: Asked) -> float:
        """Have a request answered, beside others; the seconds until its first token."""
        return first_token(self._url, asked)

    def ask(self, asked: Asked, sent: list[int]) -> tuple[dict[str, Any], Choice]:
        """The response, and what the router told of its decision; its worker is -1."""
        self._process.new_lines()
        reply = post(self._transport, asked.path, asked.data)
        if self._package.credit is None:
            return reply, Choice(-1)
        found: list[str] = []
        end = time.monotonic() + 1
        while not found and time.monotonic() < end:
            time.sleep(0.005)
            found = re.findall(self._package.credit, self._process.new_lines())
        credit = float(found[-1] or 0) if found else 0.0
        return reply, Choice(-1, **{self._package.unit: credit})


@contextmanager
def proxy(package: Package, fleet: Fleet) -> Iterator[Proxy]:
    """A router's process in front of a fleet."""
    with _process(package, fleet) as (process, url):
        process.wait(url, "/health")
        router = Proxy(package, process, url)
        messages = [{"role": "user", "content": "Hi"}]
        hello = Asked("hello", 0, {"model": fleet.served, "messages": messages, "max_tokens": 1})
        end = time.monotonic() + WAIT
        while True:  # it may answer for itself before it knows a worker
            try:
                router.ask(hello, [])
                break
            except RefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
        time.sleep(2 + 0.1 * len(fleet.workers))  # until it knows all of them
        yield router
        router.close()


@contextmanager
def dynamo(with_items: bool, fleet: Fleet) -> Iterator[Selector]:
    """Dynamo's selection service; `with_items`: it is told which images and videos there are."""
    with _process(DYNAMO, fleet) as (process, url):
        process.wait(url, "/workers")
        router = Selector(process, url, fleet, with_items)
        yield router
        router.close()


class Selector:
    """Dynamo's standalone selection service, which picks workers and does not forward.

    It has no tokenizer: it gets the engine's own token IDs, which mmroute computes for it.
    """

    def __init__(self, process: Process, url: str, fleet: Fleet, with_items: bool) -> None:
        self._fleet, self._with_items = fleet, with_items
        self._transport = Transport(Remote(url, timeout=30.0))
        self.used, self.close = process.used, self._transport.close
        for number, worker in enumerate(fleet.workers):
            self._post("/workers", {
                "worker_id": number, "model_name": fleet.served, "endpoint": worker.url,
                "block_size": fleet.block_size, "kv_events_endpoint": worker.events,
                "total_kv_blocks": fleet.num_blocks,
            })  # fmt: skip
        time.sleep(1)  # until it has connected to the events

    def ask(self, asked: Asked, sent: list[int]) -> tuple[dict[str, Any], Choice]:
        """The response of the worker that it picks, and what it credits there."""
        routing = self._fleet.normalizer.answer(from_openai(asked.body))
        question = {"model_name": self._fleet.served, "token_ids": routing.token_ids.tolist()}
        if routing.lora is not None:
            question["lora_name"] = routing.lora.name
        if self._with_items:
            question["block_mm_infos"] = _items(routing, self._fleet.block_size)
        answer = self._post("/select", question)
        worker = answer["worker_id"]
        reply = self._fleet.workers[worker].post(asked.path, asked.data)
        return reply, Choice(worker, answer["overlap"]["gpu"])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return post(self._transport, path, json.dumps(body).encode())


def _items(routing: Routing, size: int) -> list[dict[str, Any] | None]:
    """The images and videos in each block, as Dynamo takes them."""
    blocks: list[dict[str, Any] | None] = []
    for start in range(0, len(routing.token_ids) // size * size, size):
        inside = [
            {"mm_hash": int(identity.value[:16], 16), "offsets": [[
                max(0, place.offset - start), min(size, place.offset + place.length - start)]]}
            for place, identity in routing.identified()
            if place.offset < start + size and place.offset + place.length > start
        ]  # fmt: skip
        blocks.append({"mm_objects": inside} if inside else None)
    return blocks


@contextmanager
def _process(package: Package, fleet: Fleet) -> Iterator[tuple[Process, str]]:
    python = package.python()
    port = free_port()
    words = [str(python), *package.words(fleet, port, free_port())]
    with tempfile.TemporaryDirectory() as directory:
        process = Process(words, Path(directory, "router.log"))
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.close()


def _vllm_router(policy: str) -> Callable[[Fleet, int, int], list[str]]:
    def words(fleet: Fleet, port: int, other: int) -> list[str]:
        events = [w for x in fleet.workers for w in ("--kv-event-source", f"{x.url}={x.events}")]
        events += ["--kv-event-block-size", str(fleet.block_size), "--kv-event-model", fleet.served]
        return [
            "-c", "from vllm_router.launch_router import main; main()", "--policy", policy,
            *_common(fleet, port, other), *(events if policy == "kv_aware" else []),
        ]  # fmt: skip

    return words


def _common(fleet: Fleet, port: int, other: int) -> list[str]:
    return [
        "--worker-urls", *(worker.url for worker in fleet.workers), "--host", "127.0.0.1",
        "--port", str(port), "--prometheus-port", str(other), "--prometheus-host", "127.0.0.1",
        "--log-level", "debug",
    ]  # fmt: skip


def _smg(fleet: Fleet, port: int, other: int) -> list[str]:
    named = ["--backend", "vllm", "--policy", "cache_aware"]
    return ["-m", "smg.launch_router", *_common(fleet, port, other), *named]


def _sglang(fleet: Fleet, port: int, other: int) -> list[str]:
    launch = ["-m", "sglang_router.launch_router", "--policy", "cache_aware"]
    return [*launch, *_common(fleet, port, other)]


PACKAGES: Final = {
    "vllm-router, cache_aware": Package(
        "vllm-router==0.1.17", _vllm_router("cache_aware"), rf"match_rate=([\d.]+)|{_NOTHING}"
    ),
    "vllm-router, kv_aware": Package(
        "vllm-router==0.1.17", _vllm_router("kv_aware"), r"credited_prefix_tokens=(\d+)", "credited"
    ),
    "smg, cache_aware": Package("smg==1.13.0", _smg, r"matched_ratio=([\d.e-]+)"),
    "sglang-router, cache_aware": Package("sglang-router==0.3.2", _sglang),
}
DYNAMO: Final = Package(
    "ai-dynamo-runtime==1.6.1",
    lambda _, port, __: ["-m", "dynamo.select_service", "--port", str(port)],
)
