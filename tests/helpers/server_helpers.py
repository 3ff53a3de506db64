"""What the tests of the server share."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from starlette.testclient import TestClient
from waiting import until

from mmroute.lab.engines.process import free_port
from mmroute.server.app import create_app
from mmroute.server.front.listening import ConnectionLimits, Listen, open_sockets
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.run import Server
from mmroute.server.settings import ServerSettings

DIRECTORIES: Final = ("small-qwen2.5-vl", "small-pixtral-hf", "small-llava-1.5")
"""The small models that one server serves in the tests."""


@contextlib.contextmanager
def serving(
    models: Models | Sequence[ModelSource], settings: ServerSettings | None = None, **more: Any
) -> Iterator[TestClient]:
    """A client of an application whose models are loaded."""
    if not isinstance(models, Models):
        models = Models(models)
    with TestClient(create_app(models, settings, **more)) as client:
        until(lambda: models.ready)
        yield client


def answers_to(client: TestClient, requests: Iterable[httpx.Request]) -> list[httpx.Response]:
    """One after the other, without the thread and the event loop that each costs a `TestClient`."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport) as direct:
            return [await direct.send(request) for request in requests]

    return asyncio.run(ask())


def posted(path: str, body: Any) -> httpx.Request:
    """A request of JSON, of which NaN and infinity are here."""
    raw, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    return httpx.Request("POST", f"http://testserver{path}", content=raw, headers=headers)


def error_of(response: Any) -> tuple[int, str, str | None]:
    """Status, type and param of an error, whose whole shape is checked."""
    error = response.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == response.status_code
    assert isinstance(error["message"], str)
    return response.status_code, error["type"], error["param"]


def metric(client: TestClient, sample: str) -> float:
    """The value of one sample of ``/metrics``, written as it stands there; 0 if it is absent."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f"{sample} "):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


@contextlib.contextmanager
def listening(
    models: Models, settings: ServerSettings | None = None, limits: ConnectionLimits | None = None
) -> Iterator[httpx.Client]:
    """A client of a server that listens in a thread, which starts much sooner than a process."""
    listen = Listen(port=0, grace=5.0, limits=limits or ConnectionLimits())
    server, sockets = Server(models, settings or ServerSettings(), listen), open_sockets(listen)
    where = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    serving = threading.Thread(target=server.run, args=(sockets,))
    serving.start()
    try:
        with httpx.Client(base_url=where, timeout=30) as client:
            until(lambda: client.get("/health").status_code == httpx.codes.OK)
            yield client
            assert serving.is_alive()
    finally:
        server.should_exit = True
        serving.join(60)


@contextlib.contextmanager
def process(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``mmroute serve`` as a process of its own."""
    command = [sys.executable, "-m", "mmroute", "serve", *arguments]
    with log.open("wb") as stderr:
        server = subprocess.Popen(command, stderr=stderr, env={**os.environ, "PYTHONHASHSEED": "0"})
        try:
            yield server
        finally:
            server.kill()
            server.wait(60)


def wait_until_healthy(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the socket, and for the models."""

    def healthy() -> bool:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return client.get("/health").status_code == httpx.codes.OK
        return False

    until(healthy, log.read_text)


@contextlib.contextmanager
def at_socket(path: Path, server: subprocess.Popen[bytes], log: Path) -> Iterator[httpx.Client]:
    """A client of a server at a Unix socket, which is healthy."""

    def listens() -> bool:
        assert server.poll() is None, log.read_text()
        return path.exists()

    until(listens, log.read_text)  # a refused connection to a path is not closed by the client
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://server", timeout=30) as client:
        wait_until_healthy(client, server, log)
        yield client


@contextlib.contextmanager
def running(*arguments: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """``mmroute serve`` at a free port as a process, and a client of it; it is healthy."""
    port = free_port()
    with (
        process(*arguments, "--port", str(port), log=log) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        wait_until_healthy(client, server, log)
        yield server, client


def log_lines(text: str) -> list[dict[str, Any]]:
    """The JSON lines of a log."""
    return [json.loads(line) for line in text.splitlines()]
