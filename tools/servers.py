"""A server's process, for as long as it is asked."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from mmroute.lab.engines.process import free_port

_STARTS_WITHIN: Final = 300.0  # seconds
_STOPS_WITHIN: Final = 30.0
_ANSWERS_WITHIN: Final = 300.0  # vLLM decodes and resizes pictures of any size
# A connection each: a server closes idle ones, and slow answers of another leave them idle.
_NOT_KEPT: Final = httpx.Limits(max_keepalive_connections=0)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered: the JSON value, or the text if it is none."""

    status: int
    body: Any


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=_ANSWERS_WITHIN, limits=_NOT_KEPT, trust_env=False)


def ask(
    client: httpx.Client, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]
) -> Reply:
    response = client.request(method, path, content=raw, headers=headers)
    try:
        return Reply(response.status_code, json.loads(response.content))
    except ValueError:
        return Reply(response.status_code, response.text)


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], directory: Path
) -> Iterator[httpx.Client]:
    """A server on a port of its own, started in a directory; `SystemExit` if it does not start."""
    port = str(free_port())
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", port],
        cwd=directory, env={**os.environ, **environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with client_of(f"http://127.0.0.1:{port}") as client:
            if not _answers(client, server):
                raise SystemExit(f"{Path(command[0]).name} does not start")
            yield client
    finally:
        server.terminate()
        try:
            server.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(client: httpx.Client, server: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == httpx.codes.OK:
                return True
        time.sleep(0.1)
    return False
