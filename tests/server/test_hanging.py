"""Servers that hang, or are interrupted."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from server_helpers import running
from waiting import until

from mmroute.lab.engines.process import free_port
from mmroute.server.front.listening import Listen, open_sockets
from mmroute.server.models import Models
from mmroute.server.run import Server
from mmroute.server.settings import ServerSettings

pytestmark = pytest.mark.process

# A server whose event loop hangs as soon as somebody connects.
HANGING: Final = """
import sys
from mmroute.cli import main
from mmroute.server import run
from mmroute.server.front.connection import Connection

def hang(self, transport):
    print("hangs", file=sys.stderr, flush=True)
    while True:
        pass

Connection.connection_made = hang
run._LAST_WORDS = 0.1
sys.exit(main(["serve", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_though_it_hangs(
    small_model: Callable[[str], Path], tmp_path: Path, number: int
) -> None:
    port, log = free_port(), tmp_path / "log"
    directory, seconds = str(small_model("small-qwen2.5-vl")), "--drain-seconds=0.1"
    command = [sys.executable, "-c", HANGING, directory, "--port", str(port)]
    with log.open("wb") as stderr:
        server = subprocess.Popen([*command, seconds, "--grace-seconds=0.1"], stderr=stderr)
    try:

        def hangs() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
            return b"hangs" in log.read_bytes()

        until(hangs, log.read_text)
        server.send_signal(number)
        assert server.wait(60) == 1
    finally:
        server.kill()
        server.wait(60)
    assert " in hang\n" in log.read_text()  # it says where


def test_an_interrupted_server_says_so_by_its_status(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    directory, log = str(small_model("small-qwen2.5-vl")), tmp_path / "log"
    with running(directory, log=log) as (server, _):
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
    assert "Traceback" not in log.read_text()
    assert log.read_text().endswith("interrupted\n")


def test_a_watchdog_hears_of_each_turn(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd's: a service that is silent for WatchdogSec is killed and started again."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as watchdog:
        watchdog.bind(str(path))
        watchdog.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        listen = Listen(port=0)
        server = Server(models, ServerSettings(), listen)
        serving = threading.Thread(target=server.run, args=(open_sockets(listen),))
        serving.start()
        try:
            assert [watchdog.recv(64) for _ in "ab"] == [b"WATCHDOG=1"] * 2
        finally:
            server.should_exit = True
            serving.join(60)
