"""Servers of one or several processes that hang, or are interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from server_helpers import forked, log_lines, running, settled, wait_until_healthy
from waiting import until

from mmroute.lab.engines.vllm.process import free_port

COUNT: Final = 2


# A server whose event loop hangs as soon as the models are loaded.
HANGING: Final = """
import sys
from mmroute.cli import main
from mmroute.server.front.connections import Front

def hang(self):
    print("hangs", file=sys.stderr, flush=True)
    while True:
        pass

Front.connection = hang
sys.exit(main(["serve", *sys.argv[1:]]))
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_only_process_ends_though_it_hangs(
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


# The server, which gives up a process after three seconds.
IMPATIENT: Final = """
import sys
from mmroute.cli import main
from mmroute.server import supervisor

supervisor._MOST_LOOKS = 3
sys.exit(main(["serve", *sys.argv[1:]]))
"""


@pytest.fixture
def impatient(
    small_model: Callable[[str], Path], tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    port, log = free_port(), tmp_path / "log"
    directory, seconds = str(small_model("small-qwen2.5-vl")), "--drain-seconds=0.1"
    command = [sys.executable, "-c", IMPATIENT, directory, "--port", str(port), "--processes", "2"]
    with log.open("wb") as stderr:
        server = subprocess.Popen([*command, seconds, "--grace-seconds=0.1"], stderr=stderr)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_until_healthy(client, server, log)
        yield server, port, log
    finally:
        for pid in [] if server.poll() is not None else [*forked(server.pid), server.pid]:
            os.kill(pid, signal.SIGKILL)
        server.wait(60)


@pytest.mark.process
def test_a_process_that_hangs_is_replaced(
    impatient: tuple[subprocess.Popen[bytes], int, Path],
) -> None:
    server, _, log = impatient
    before = settled(server, COUNT)
    os.kill(before[0], signal.SIGSTOP)
    until(lambda: before[0] not in forked(server.pid) and len(forked(server.pid)) >= COUNT)
    assert before[1] in forked(server.pid)  # which turns its event loop
    hanging = [line for line in log_lines(log.read_text()) if line["event"] == "process hangs"]
    assert [line["pid"] for line in hanging] == [before[0]]


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_hangs_does_not_keep_the_server(
    impatient: tuple[subprocess.Popen[bytes], int, Path], number: int
) -> None:
    server, _, log = impatient
    os.kill(settled(server, COUNT)[0], signal.SIGSTOP)
    server.send_signal(number)
    assert server.wait(60) == (130 if number == signal.SIGINT else 0), log.read_text()


@pytest.mark.process
@pytest.mark.parametrize("count", ["1", "2"])
def test_an_interrupted_server_says_so_by_its_status(
    small_model: Callable[[str], Path], tmp_path: Path, count: str
) -> None:
    directory, log = str(small_model("small-qwen2.5-vl")), tmp_path / "log"
    with running(directory, "--processes", count, log=log) as (server, _):
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
    assert "Traceback" not in log.read_text()
    assert log.read_text().endswith("interrupted\n")
