"""Several servers at one port: each is a server of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from chat_requests import CHAT, HI
from server_helpers import process, wait_until_healthy

from mmroute.lab.engines.process import free_port

pytestmark = pytest.mark.process

ADMIN = {"authorization": "Bearer k"}
ASKED = 40


@pytest.fixture
def pair(
    small_model: Callable[[str], Path], tmp_path: Path
) -> Iterator[tuple[str, list[httpx.Client], list[subprocess.Popen[bytes]]]]:
    """The URL that two servers share, a client of each one's own, and their processes."""
    shared = free_port()
    options = (f"m={small_model('small-qwen2.5-vl')}", "--reuse-port", "--port", str(shared))
    with contextlib.ExitStack() as stack:
        clients, servers = [], []
        for name in "ab":
            own, log = free_port(), tmp_path / name
            more = ("--own-port", str(own), "--admin-key", "k", "--drain-seconds", "0")
            server = stack.enter_context(process(*options, *more, log=log))
            client = httpx.Client(base_url=f"http://127.0.0.1:{own}", timeout=30)
            clients.append(stack.enter_context(client))
            servers.append((server, log))
        for client, (server, log) in zip(clients, servers, strict=True):
            wait_until_healthy(client, server, log)
        yield f"http://127.0.0.1:{shared}", clients, [server for server, _ in servers]


def ask_all(url: str) -> None:
    """Each request over a connection of its own."""
    with httpx.Client(base_url=url, headers={"connection": "close"}) as client:
        for _ in range(ASKED):
            assert client.post(CHAT, json={"messages": HI}).status_code == httpx.codes.OK


def answered(client: httpx.Client) -> float:
    name = f'mmroute_request_duration_seconds_count{{route="{CHAT}",status="200"}} '
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_they_share_connections_and_nothing_else(
    pair: tuple[str, list[httpx.Client], list[subprocess.Popen[bytes]]],
) -> None:
    url, clients, servers = pair
    ask_all(url)
    counts = [answered(client) for client in clients]
    assert sum(counts) == ASKED
    assert min(counts) > 0
    body = {"model": "pixtral-12b-2409", "names": ["more"]}
    changed = clients[0].post("/admin/models", json=body, headers=ADMIN)
    assert changed.status_code == httpx.codes.ACCEPTED
    assert clients[1].get("/admin/models/more", headers=ADMIN).status_code == httpx.codes.NOT_FOUND
    servers[0].send_signal(signal.SIGTERM)
    assert servers[0].wait(60) == 0
    ask_all(url)
