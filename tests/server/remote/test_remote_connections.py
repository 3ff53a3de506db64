"""Connections to a server: kept, closed, bounded, broken and slow."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from remote_helpers import QWEN, connected, listening
from scripted_server import ScriptedServer

from mmroute import Reason, Remote, connect
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models

pytestmark = pytest.mark.process


def test_connections_are_kept_and_closed(scripted: ScriptedServer) -> None:
    with connected(scripted) as remote:
        for _ in range(5):
            assert remote.normalize(prompt="a").exact
        assert len(set(scripted.clients)) == 1
    assert remote.normalize(prompt="a").exact  # and it may go on
    assert len(set(scripted.clients)) == 2
    remote.close()
    remote.close()


def test_connections_are_bounded(scripted: ScriptedServer) -> None:
    with connected(scripted, max_connections=2) as remote, ThreadPoolExecutor(8) as pool:
        scripted.delay = 0.02
        routings = list(pool.map(lambda _: remote.normalize(prompt="a"), range(24)))
    assert all(routing.exact for routing in routings)
    assert scripted.busiest == 2
    assert len(set(scripted.clients)) <= 2


def test_a_forked_process_has_its_own_connections(scripted: ScriptedServer) -> None:
    with connected(scripted) as remote:
        child = os.fork()
        if not child:
            os._exit(0 if remote.normalize(prompt="a").exact else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert remote.normalize(prompt="a").exact
    connections = list(dict.fromkeys(scripted.clients))
    assert len(connections) == 2
    assert scripted.clients[-1] == connections[0]


# httpcore leaves a socket that found nobody to the garbage collector, which warns of it.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_server_that_is_started_again(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    source = ModelSource(str(small_model(QWEN)), ("m",))
    with listening(Models([source]), uds=tmp_path / "s") as url:
        remote = connect("m", url)
        assert remote.normalize(prompt="a").exact
    away = remote.normalize(prompt="a")
    assert away.reason is Reason.REMOTE_UNAVAILABLE
    assert "cannot be reached" in away.message
    gc.collect()
    with listening(Models([source]), uds=tmp_path / "s"), remote:
        assert remote.normalize(prompt="a").exact


@contextlib.contextmanager
def answering(behave: Callable[[socket.socket, int], None]) -> Iterator[tuple[str, list[int]]]:
    """A socket whose connections are handed to a function, one by one; how many there were."""
    count: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    count.append(len(count))
                    with connection, contextlib.suppress(OSError):
                        behave(connection, count[-1])

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", count
        listener.shutdown(socket.SHUT_RDWR)


def receive(connection: socket.socket) -> bytes:
    """One request."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        chunk = connection.recv(65536)
        if not chunk:
            raise OSError
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        while name.lower() == b"content-length" and len(body) < int(value):
            body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def send(connection: socket.socket, value: Any) -> None:
    content = json.dumps(value).encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content)


def greet(connection: socket.socket) -> None:
    """What a client asks first, and wants to hear."""
    receive(connection)
    send(connection, {"version": "0.33.0"})
    receive(connection)
    send(connection, "metrics that tell nothing of a cache")
    receive(connection)
    send(connection, {"data": [{"id": "m", "parent": None}]})
    receive(connection)
    send(connection, [{"token_ids": [1], "features": None}])


def test_a_kept_connection_that_is_closed_at_the_wrong_moment() -> None:
    """The request was sent, and nobody read it: it is sent once more."""
    requests = []

    def behave(connection: socket.socket, number: int) -> None:
        if number == 0:
            greet(connection)
            requests.append(receive(connection))
            return  # closed without a word
        requests.append(receive(connection))
        send(connection, [{"token_ids": [2], "features": None}])

    with answering(behave) as (url, count), connect("m", url) as remote:
        assert remote.normalize(prompt="b").token_ids.tolist() == [2]
    assert len(count) == 2
    assert requests[0] == requests[1]


def test_a_new_connection_that_is_closed_is_not_tried_again() -> None:
    def behave(connection: socket.socket, number: int) -> None:
        if number == 0:
            greet(connection)
        else:
            receive(connection)

    with answering(behave) as (url, count), connect("m", url) as remote:
        remote.close()
        assert remote.normalize(prompt="b").reason is Reason.REMOTE_UNAVAILABLE
        assert len(count) == 2


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n["],
    ids=["nothing", "headers", "body"],
)
@pytest.mark.parametrize("drips", [False, True])
def test_a_slow_server(beginning: bytes, drips: bool) -> None:
    """Whatever it sends, and however slowly, a request ends when its time is over."""
    done = threading.Event()

    def behave(connection: socket.socket, _: int) -> None:
        greet(connection)
        receive(connection)
        connection.sendall(beginning or b"HTTP" * drips)
        while not done.wait(0.05):
            if drips:
                connection.sendall(b" ")

    with answering(behave) as (url, count):
        remote = connect("m", Remote(url, timeout=1.0))
        routing = remote.normalize(prompt="b")
        done.set()
        remote.close()
    assert routing.reason is Reason.REMOTE_UNAVAILABLE
    assert "within 1 s" in routing.message
    assert len(count) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http(answer: bytes) -> None:
    def behave(connection: socket.socket, number: int) -> None:
        if number == 0:
            greet(connection)
        receive(connection)
        connection.sendall(answer)

    with answering(behave) as (url, _), connect("m", url) as remote:
        assert remote.normalize(prompt="b").reason is Reason.REMOTE_UNAVAILABLE


def test_an_answer_without_end() -> None:
    sent = 0

    def behave(connection: socket.socket, _: int) -> None:
        nonlocal sent
        greet(connection)
        receive(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * (1 << 20))
            sent += 1 << 20

    with answering(behave) as (url, _):
        remote = connect("m", Remote(url, timeout=60))
        routing = remote.normalize(prompt="b")
        remote.close()
    assert routing.reason is Reason.REMOTE_UNAVAILABLE
    assert "more than" in routing.message
    assert sent < 80 << 20
