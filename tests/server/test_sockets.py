"""The sockets that a server opens: who may take them, and whose file is removed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_helpers import at_socket, process
from waiting import until

from mmroute.cli import main
from mmroute.server.front.listening import Listen, open_sockets, socket_file
from mmroute.server.models import Models
from mmroute.server.run import Server
from mmroute.server.settings import ServerSettings

pytestmark = pytest.mark.process


def bound(path: Path) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX)
    opened.bind(str(path))
    return opened


def test_a_server_removes_its_own_socket_and_leaves_its_successor_s(tmp_path: Path) -> None:
    path, beside = tmp_path / "s", tmp_path / "beside"
    with bound(path), socket_file(str(path)):
        pass
    assert not path.exists()
    with bound(path), bound(beside), socket_file(str(path)):
        beside.replace(path)
    assert path.exists()


def test_clients_that_come_again_and_again_do_not_keep_the_server(models: Models) -> None:
    """It takes the connections that wait when listening ends, and no later ones."""
    listen = Listen(port=0)
    (listening,) = open_sockets(listen)
    address, clients = listening.getsockname(), [socket.create_connection(listening.getsockname())]

    async def end() -> None:
        server = Server(models, ServerSettings(), listen)
        server.servers = []
        make = server.connection

        def connection() -> Any:
            with contextlib.suppress(ConnectionError):
                clients.append(socket.create_connection(address))
            return make()

        server.connection = connection  # type: ignore[method-assign]
        await server._stop_listening([listening])
        listening.close()
        for each in tuple(server.server_state.connections):
            each.transport.abort()
        await server.service.close()

    asyncio.run(asyncio.wait_for(end(), 60))
    for client in clients:
        client.close()
    assert len(clients) <= 2


@pytest.fixture
def directory(small_model: Callable[[str], Path]) -> str:
    return str(small_model("small-qwen2.5-vl"))


def test_a_successor_takes_the_socket_of_a_server_that_drains(
    directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, logs = tmp_path / "s", [tmp_path / "log-0", tmp_path / "log-1"]
    where = (directory, "--uds", str(path), "--drain-seconds", "60")
    with process(*where, log=logs[0]) as first, at_socket(path, first, logs[0]) as client:
        assert main(["serve", *where]) == 1  # it does not drain yet
        assert "Address already in use" in capsys.readouterr().err
        first.send_signal(signal.SIGTERM)
        until(lambda: client.get("/health").status_code != httpx.codes.OK)
        with process(*where, log=logs[1]) as second, at_socket(path, second, logs[1]) as after:
            assert first.poll() is None
            first.send_signal(signal.SIGINT)
            assert first.wait(60) == 130  # as of every command
            assert after.get("/health").status_code == httpx.codes.OK
            assert path.exists()


def test_a_port_that_is_taken(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve", directory, "--port", port]) == 1
    told = capsys.readouterr().err
    assert "could not listen" in told
    assert "Address already in use" in told


def test_an_address_that_cannot_be_used_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))
        for host in ("192.0.2.1", "127.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    (opened,) = open_sockets(Listen(host="several"))
    assert opened.getsockname()[0] == "127.0.0.1"
    opened.close()
    del found[1]
    with pytest.raises(OSError, match="could not listen"):
        open_sockets(Listen(host="several"))
