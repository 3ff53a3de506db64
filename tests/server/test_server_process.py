"""``mmroute serve`` as a process: many models, signals, and clients that break off."""

from __future__ import annotations

import contextlib
import json
import operator
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from chat_requests import CHAT, EMBEDDINGS, HI, TOKENIZE
from media_files import png_url
from scripted_server import ScriptedServer
from server_helpers import at_socket, listening, log_lines, process, running
from waiting import until

from mmroute import Normalizer
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings

pytestmark = pytest.mark.process

CLIENTS: Final = 6


@pytest.fixture
def directory(small_model: Callable[[str], Path]) -> str:
    return str(small_model("small-qwen2.5-vl"))


def test_a_unix_socket_serves_many_models(
    directory: str, tmp_path: Path, small_model: Callable[[str], Path]
) -> None:
    path, log = tmp_path / "s", tmp_path / "log"
    models = (f"qwen,alias={directory}", f"llava={small_model('small-llava-1.5')}", EMBEDDED_MODEL)
    ids = ("--model-id", "qwen=org/qwen", "--model-id", "llava=org/llava")
    with (
        ScriptedServer() as upstream,
        process(
            *models, *ids, "--uds", str(path), "--fallback-url", upstream.url,
            "--enable-request-id-headers", "--access-log", "all", "--drain-seconds", "0", log=log,
        ) as server,
        at_socket(path, server, log) as client,
    ):  # fmt: skip
        named = [card["id"] for card in client.get("/v1/models").json()["data"]]
        assert named == ["qwen", "alias", "llava", EMBEDDED_MODEL]
        image = {"type": "image_url", "image_url": {"url": png_url(64, 48)}}
        messages = [{"role": "user", "content": [image]}]
        for name, model in (("alias", directory), ("llava", models[1].partition("=")[2])):
            body = {"model": name, "messages": messages, "mm_payload": "none"}
            answer = client.post(CHAT, json=body).json()
            model_id = f"org/{name.replace('alias', 'qwen')}"
            own = Normalizer.from_pretrained(model, model_id=model_id).normalize(messages=messages)
            assert answer["token_ids"] == own.token_ids.tolist()
            assert answer["features"]["mm_hashes"]["image"] == [str(own.identities[0])]
        answer = client.post(CHAT, json={"messages": EMBEDDINGS})
        assert answer.headers["x-mmroute-fallback"] == "unsupported_modality"
        assert answer.headers["x-request-id"]
        client.post("/v1/completions/render?algorithm=sha256", json={"prompt": "hi"})  # by a guess
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    events = log_lines(log.read_text())  # every line is JSON, the HTTP server's own as well
    assert [e["outcome"] for e in events if e["event"] == "request" and e["route"] == CHAT] == [
        "exact", "exact", "fallback",
    ]  # fmt: skip
    (listening,) = (event for event in events if event["event"] == "listening")
    assert listening["addresses"] == [str(path)]
    assert any("only a guess" in event.get("text", "") for event in events)
    assert [event["event"] for event in events[-2:]] == ["draining", "stopped"]


def test_sigterm_loses_no_accepted_request(directory: str, tmp_path: Path) -> None:
    """Clients go on while the server drains. Whoever got a connection gets an answer."""
    lost, answered = list[str](), [0] * CLIENTS
    stopping = threading.Event()
    body = json.dumps({"messages": HI}).encode()
    long = json.dumps({"messages": [{"role": "user", "content": "a b " * 8000}]}).encode()
    headers = {"content-type": "application/json"}

    def go_on(number: int) -> None:
        with httpx.Client(timeout=30) as own:
            while True:
                try:
                    answer = own.post(
                        client.base_url.join(CHAT), content=long if number % 3 == 0 else body,
                        headers=headers,
                    )  # fmt: skip
                except httpx.ConnectError:
                    if not stopping.is_set():
                        lost.append("refused while it served")
                    return  # it listens no more
                except httpx.TransportError as error:
                    lost.append(repr(error))
                    return
                if answer.status_code != httpx.codes.OK:
                    lost.append(answer.text)
                answered[number] += 1
                if answer.headers.get("connection") == "close":
                    closed.set()  # and on it goes, with a new connection

    closed = threading.Event()
    options = ("--worker-bytes", "20000", "--drain-seconds", "60")
    with running(directory, *options, log=tmp_path / "log") as (server, client):
        threads = [threading.Thread(target=go_on, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        until(lambda: lost or min(answered) > 0)
        server.send_signal(signal.SIGTERM)
        until(lambda: client.get("/health").status_code != httpx.codes.OK)
        draining = client.get("/health")
        assert (draining.status_code, draining.headers["connection"]) == (503, "close")
        assert closed.wait(60)
        before = list(answered)
        until(lambda: lost or all(map(operator.gt, answered, before)))  # with new connections
        stopping.set()
        server.send_signal(signal.SIGTERM)  # a second one ends the drain
        for thread in threads:
            thread.join(60)
        assert server.wait(60) == 0
    assert not lost


def test_slow_malformed_and_vanishing_clients(models: Models) -> None:
    with listening(models, ServerSettings(request_timeout=0.5)) as client:
        address = ("127.0.0.1", client.base_url.port)
        head = f"POST {TOKENIZE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        for raw, answer in (
            (b"\x00\xff\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
            (f"{head}Content-Length: 100\r\n\r\n{{".encode(), b"408"),  # never the rest
            (f"{head}Content-Length: 99999999999\r\n\r\n".encode(), b"413"),
        ):
            with socket.create_connection(address, timeout=60) as connection:
                connection.sendall(raw)
                assert answer in connection.recv(4096).split(b"\r\n")[0]
        for _ in range(20):  # gone before the answer
            with socket.create_connection(address) as connection:
                connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        until(lambda: client.post(TOKENIZE, json={"prompt": "a"}).status_code == 200)


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-m", "mmroute", "serve", str(tmp_path / "empty"), "--port", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "mmroute: unknown_family" in result.stderr or "missing_file" in result.stderr


def test_the_end_is_bounded(directory: str, tmp_path: Path, silent_host: int) -> None:
    """By --grace-seconds, though a thread waits for somebody else."""
    link = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{silent_host}/a.png"}}
    options = (
        "--drain-seconds", "0", "--grace-seconds", "0.5", "--image-host", "127.0.0.1",
        "--image-network", "127.0.0.0/8",
    )  # fmt: skip
    with running(directory, *options, log=tmp_path / "log") as (server, client):
        answers, body = [], {"messages": [{"role": "user", "content": [link]}]}

        def ask() -> None:
            with contextlib.suppress(httpx.TransportError):
                answers.append(httpx.post(client.base_url.join(CHAT), json=body, timeout=30))

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: "mmroute_links_in_flight 1.0" in client.get("/metrics").text)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        asking.join(60)
        assert not answers, "the link has ten seconds, and then its request has an answer"


@pytest.fixture
def silent_host() -> Iterator[int]:
    """The port of a server that accepts and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]
