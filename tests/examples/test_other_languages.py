"""The programs in Go and Rust, each where its compiler is installed."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from chat_requests import picture
from paths import ROOT, VECTORS
from server_helpers import process, wait_until_healthy
from waiting import until

from mmroute.lab.engines.process import free_port
from mmroute.model_directory import EMBEDDED_MODEL

pytestmark = pytest.mark.process

BUILDS: Final[Mapping[str, list[str]]] = {
    "go": ["build", "-o", "{out}", "{source}.go"],
    "rustc": ["--edition=2021", "-Dwarnings", "-o", "{out}", "{source}.rs"],
}
ROUTERS: Final = {"go": "examples/go_router/main", "rustc": "examples/rust_router/main"}
RUNNER: Final = "tests/core/conformance/runners/run_vectors"
COMPILERS: Final = {name: path for name in BUILDS if (path := shutil.which(name))}
CHAT: Final = "/v1/chat/completions"


class Worker(http.server.ThreadingHTTPServer):
    """Answers each chat with its own port, and keeps the bodies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[Any] = []
        self.keys: list[str | None] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Worker

    def do_POST(self) -> None:
        self.server.keys.append(self.headers["Authorization"])
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({"port": self.server.server_port}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started = [Worker(), Worker()]
    yield started
    for worker in started:
        worker.shutdown()
        worker.server_close()


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port, log = free_port(), tmp_path_factory.mktemp("render") / "log"
    with (
        process(EMBEDDED_MODEL, "--port", str(port), log=log) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        wait_until_healthy(client, server, log)
        yield port


def built(compiler: str, source: str, out: Path) -> str:
    """The path of a program."""
    words = [word.format(out=out, source=source) for word in BUILDS[compiler]]
    subprocess.run([COMPILERS[compiler], *words], cwd=ROOT, check=True)
    return str(out)


def options(compiler: str, port: int, render: int, workers: list[Worker]) -> list[str]:
    listen, places = f"127.0.0.1:{port}", [f"127.0.0.1:{worker.server_port}" for worker in workers]
    if compiler == "rustc":
        return [listen, f"127.0.0.1:{render}", "16", *places]
    named = [word for place in places for word in ("--worker", f"http://{place}")]
    return ["--listen", listen, "--render", f"http://127.0.0.1:{render}", *named]


def conversation(colour: int) -> Iterator[dict[str, Any]]:
    """Three turns about one picture; each has all that was said before."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [picture(640 + colour, 480)]}]
    for turn in range(3):
        yield {"model": EMBEDDED_MODEL, "messages": list(messages)}
        messages += [
            {"role": "assistant", "content": 'block_hashes": [' + "a long answer " * 20},
            {"role": "user", "content": f"and {turn}?"},
        ]


if COMPILERS:

    @pytest.mark.parametrize("compiler", COMPILERS)
    def test_a_conversation_stays_with_its_worker(
        compiler: str, render: int, workers: list[Worker], tmp_path: Path
    ) -> None:
        program, port = built(compiler, ROUTERS[compiler], tmp_path / "router"), free_port()
        with (
            subprocess.Popen([program, *options(compiler, port, render, workers)]) as router,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        ):
            try:
                _wait(port)
                talks = [list(conversation(colour)) for colour in range(4)]
                sent = [
                    [
                        client.post(CHAT, json=talk[turn]).raise_for_status().json()["port"]
                        for talk in talks
                    ]
                    for turn in range(3)
                ]
                inexact = {
                    "model": EMBEDDED_MODEL,
                    "messages": [{"role": "nobody", "content": "x"}],
                }
                assert (
                    client.post(CHAT, json=inexact).status_code == httpx.codes.OK
                )  # by any worker
            finally:
                router.terminate()
        assert sent[0] == sent[1] == sent[2]
        assert sorted(sent[0]) == sorted([worker.server_port for worker in workers] * 2)
        bodies = [body for worker in workers for body in worker.bodies]
        assert all(body in bodies for talk in talks for body in talk)

    @pytest.mark.parametrize("compiler", COMPILERS)
    def test_a_router_passes_a_key_on_and_says_that_a_worker_is_gone(
        compiler: str, render: int, workers: list[Worker], tmp_path: Path
    ) -> None:
        program, port = built(compiler, ROUTERS[compiler], tmp_path / "router"), free_port()
        body = json.dumps({"model": EMBEDDED_MODEL, "messages": []}).encode()
        headers = {"Authorization": "Bearer a", "Expect": "100-continue"}
        with (
            subprocess.Popen([program, *options(compiler, port, render, workers[:1])]) as router,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        ):
            try:
                _wait(port)
                assert client.post(CHAT, content=body, headers=headers).is_success
                assert workers[0].keys == ["Bearer a"]
                workers[0].shutdown()
                workers[0].server_close()
                gone = client.post(CHAT, content=body)
                assert gone.status_code == httpx.codes.BAD_GATEWAY
                if compiler == "rustc":
                    chunked = client.post(CHAT, content=iter([body]))
                    assert chunked.status_code == httpx.codes.LENGTH_REQUIRED
            finally:
                router.terminate()

    @pytest.mark.parametrize("compiler", COMPILERS)
    def test_a_runner_judges_the_answers_of_a_server(
        compiler: str, render: int, tmp_path: Path
    ) -> None:
        program = built(compiler, RUNNER, tmp_path / "run_vectors")
        images = VECTORS / "images"
        kept = (images / f"{EMBEDDED_MODEL}.jsonl").read_text(encoding="utf-8").split("\n")[:30]
        vectors = tmp_path / "vectors.jsonl"
        vectors.write_text("\n".join(kept), encoding="utf-8")
        files = [str(images / "files.jsonl")] if compiler == "rustc" else []

        def ran(*command: str) -> tuple[int, str, str]:
            asked = [program, str(vectors), *files, sys.executable, *command]
            done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr

        url = f"http://127.0.0.1:{render}"
        right = ran("examples/ask_server.py", EMBEDDED_MODEL, url)
        assert right[:2] == (0, "conformant with vllm 0.33.0: 29 of 29\n")
        echo = 'import sys; [print(\'{"exact": true, "token_ids": [1]}\') for _ in sys.stdin]'
        status, shown, verdict = ran("-c", echo)
        assert (status, shown.count("SILENT")) == (1, 29)
        assert verdict == "not conformant with vllm 0.33.0: 29 of 29 wrong\n"


def _wait(port: int) -> None:
    with contextlib.closing(socket.socket()) as client:
        until(lambda: client.connect_ex(("127.0.0.1", port)) == 0)
