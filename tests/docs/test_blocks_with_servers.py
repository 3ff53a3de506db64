"""The blocks of the pages that need servers or processes, which are here those of this machine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import zmq
from paths import ROOT
from server_helpers import at_socket, process, wait_until_healthy

from mmroute.kv_events import WorkerRank
from mmroute.lab.engines.process import free_port
from mmroute.server.bundle.server import create_server

pytestmark = pytest.mark.process

MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
TRACE = re.compile(
    r"```sh\n(?P<commands>[^`]*make_trace[^`]*)```\n\n```text\n(?P<shown>.*?)```", re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: [^\n]+ -->\n```python\n(?P<code>.*?)```", re.DOTALL)


def run_block(page: str, containing: str, replaced: Mapping[str, str]) -> dict[str, Any]:
    """The names that a block leaves; it is the one with these words."""
    path = ROOT / "docs" / page
    found = [f["code"] for f in NOT_RUN.finditer(path.read_text(encoding="utf-8"))]
    (code,) = [code for code in found if containing in code]
    for there, here in replaced.items():
        assert there in code
        code = code.replace(there, here)
    names: dict[str, Any] = {}
    exec(compile(code, str(path), "exec"), names)  # noqa: S102 - the pages are our own
    return names


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> Path:
    return small_model("small-qwen2.5-vl")


@pytest.fixture
def workers(model: Path, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two workers that hold the same files."""
    servers, addresses = [], []
    for number in (0, 1):
        files = {file.name: file for file in model.iterdir()}
        server = create_server(files, tmp_path / str(number))
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        servers.append(server)
    yield addresses
    for server in servers:
        server.stop(None).wait()


def test_a_fleet_of_workers(workers: list[str]) -> None:
    replaced = {"10.0.0.7:50051": workers[0], "10.0.0.8:50051": workers[1]}
    names = run_block("deploy.md", "fetch_fleet", replaced)
    assert names["normalizer"].normalize(prompt="Hi").exact
    assert names["normalizer"].model.model_id == MODEL
    assert names["bundle"].files


def test_servers_in_place_of_a_model(model: Path, tmp_path: Path) -> None:
    socket, port, log = tmp_path / "http.sock", free_port(), tmp_path / "log"
    with (
        process(f"qwen={model}", "--uds", str(socket), log=log) as first,
        process(f"qwen={model}", "--port", str(port), "--api-key", "secret", log=log) as second,
    ):
        with (
            at_socket(socket, first, log),
            httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            wait_until_healthy(client, second, log)
        names = run_block(
            "server.md",
            "mmroute.connect(",
            {
                "/run/mmroute/http.sock": str(socket),
                "http://render:8000": f"http://127.0.0.1:{port}",
            },
        )
        assert names["routing"].exact


def test_the_events_of_workers() -> None:
    port, ended = free_port(), threading.Event()
    block = b"0123456789abcdef"
    stored = {
        "type": "BlockStored", "block_hashes": [block], "parent_block_hash": None,
        "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None,
    }  # fmt: skip
    payload = msgspec.msgpack.encode([0.0, [stored], 0])

    def publish() -> None:
        with zmq.Context() as context, context.socket(zmq.XPUB) as worker:
            worker.connect(f"tcp://127.0.0.1:{port}")
            worker.recv()  # the subscription
            worker.send_multipart([b"kv@pod@model", (0).to_bytes(8, "big"), payload])
            ended.wait(60)

    publisher = threading.Thread(target=publish)
    publisher.start()
    replaced = {
        "*:5557": f"127.0.0.1:{port}",
        "in subscriber:": "in __import__('itertools').islice(subscriber, 1):",
    }
    try:
        names = run_block("engines.md", "Subscriber", replaced)
    finally:
        ended.set()
        publisher.join()
    assert names["index"].longest_prefixes([block]) == {WorkerRank("kv@pod@model", 0): 1}


def test_the_trace_of_the_page(tmp_path: Path) -> None:
    """The script writes it, and the report of it is the one that the page shows."""
    found = TRACE.search((ROOT / "docs" / "hit-rate.md").read_text(encoding="utf-8"))
    assert found is not None
    python, examples = map(shlex.quote, (sys.executable, str(ROOT / "examples")))
    commands = found["commands"].replace(".venv/bin/mmroute", f"{python} -m mmroute")
    commands = commands.replace(".venv/bin/python examples", f"{python} {examples}")
    script = ["/bin/sh", "-ec", commands]
    assert subprocess.check_output(script, cwd=tmp_path, text=True) == found["shown"]
