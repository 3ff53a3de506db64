"""``mmroute serve`` as a process: sockets, signals, usage; and clients that know nothing of it."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from media_files import png_url
from paths import ROOT
from server_helpers import (
    CHAT,
    EMBEDDINGS,
    HI,
    TOKENIZE,
    FakeRender,
    log_lines,
    process,
    running,
    wait_until_healthy,
)
from waiting import until

from mmroute import Normalizer
from mmroute.cli import main
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.parity.prove.process import free_port
from mmroute.server.front.listening import Listen, open_sockets
from tools import needs

pytestmark = pytest.mark.process

CLIENTS: Final = 6


@pytest.fixture
def directory(small_model: Callable[[str], Path]) -> str:
    return str(small_model("small-qwen2.5-vl"))


def connected(**where: Any) -> httpx.Client:
    return httpx.Client(
        transport=httpx.HTTPTransport(**where), base_url="http://server", timeout=20
    )


def test_a_unix_socket_serves_many_models(
    directory: str, tmp_path: Path, small_model: Callable[[str], Path]
) -> None:
    path, log = tmp_path / "s", tmp_path / "log"
    models = (f"qwen,alias={directory}", f"llava={small_model('small-llava-1.5')}", EMBEDDED_MODEL)
    ids = ("--model-id", "qwen=org/qwen", "--model-id", "llava=org/llava")
    with (
        FakeRender() as upstream,
        process(
            *models, *ids, "--uds", str(path), "--fallback-url", upstream.url,
            "--enable-request-id-headers", "--access-log", "all", "--drain-seconds", "0", log=log,
        ) as server,
        connected(uds=str(path)) as client,
    ):  # fmt: skip
        while not path.exists():  # a refused connection to a path is not closed by the client
            assert server.poll() is None, log.read_text()
            time.sleep(0.02)
        wait_until_healthy(client, server, log)
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
        assert server.wait(20) == 0
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
        with connected(retries=0) as own:
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
            thread.join(20)
        assert server.wait(20) == 0
    assert not lost


def test_slow_malformed_and_vanishing_clients(directory: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(directory, "--request-timeout", "0.5", log=log) as (server, client):
        address = ("127.0.0.1", client.base_url.port)
        head = f"POST {TOKENIZE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        for raw, answer in (
            (b"\x00\xff\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
            (f"{head}Content-Length: 100\r\n\r\n{{".encode(), b"408"),  # never the rest
            (f"{head}Content-Length: 99999999999\r\n\r\n".encode(), b"413"),
        ):
            with socket.create_connection(address, timeout=10) as connection:
                connection.sendall(raw)
                assert answer in connection.recv(4096).split(b"\r\n")[0]
        for _ in range(20):  # gone before the answer
            with socket.create_connection(address) as connection:
                connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert client.post(TOKENIZE, json={"prompt": "a"}).status_code == 200
        assert server.poll() is None
    assert "Traceback" not in log.read_text()


@needs("curl", "the examples of the pages call it")
def test_the_examples_of_the_pages(tmp_path: Path) -> None:
    blocks = [
        (page, block)
        for page in (ROOT / "docs" / "server.md", ROOT / "docs" / "with-llm-d.md")
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if "curl" in block
    ]
    port, log = free_port(), tmp_path / "log"
    with process(EMBEDDED_MODEL, "--port", str(port), "--admin-key", "secret", log=log):
        for page, block in blocks:
            script = "set -e\n" + block.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
            result = subprocess.run(
                ["/bin/sh", "-c", script],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={**os.environ, "KEY": "secret"},
            )
            assert result.returncode == 0, result.stderr
            assert '"error":{' not in result.stdout
            assert "nauthorized" not in result.stdout
            if "image_url" in block:  # the page shows the answer
                answer = json.loads(result.stdout)
                shown = re.search(r'"token_ids":(\[.*?\])', page.read_text(encoding="utf-8"))
                assert shown is not None
                assert answer["token_ids"] == json.loads(shown[1])
                assert answer["features"]["mm_placeholders"]["image"][0]["is_embed"]


def test_the_official_client_as_the_page_has_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "openai" in b]
    (shown,) = re.findall(r"# (\[.*\])", block)
    with running(EMBEDDED_MODEL, log=tmp_path / "log") as (_, plain):
        code = block.replace("127.0.0.1:8000", f"127.0.0.1:{plain.base_url.port}")
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == f"{shown}\n"


def test_the_official_client(directory: str, tmp_path: Path) -> None:
    import openai  # takes long

    with running(directory, "--api-key", "k", log=tmp_path / "log") as (_, plain):
        client = openai.OpenAI(base_url=str(plain.base_url.join("/v1")), api_key="k")
        assert [model.id for model in client.models.list()] == [directory]
        answer = client.post(
            "/chat/completions/render", body={"model": directory, "messages": HI}, cast_to=object
        )
        assert isinstance(answer, dict)
        assert answer["token_ids"]
        with pytest.raises(openai.UnprocessableEntityError) as found:
            client.post("/chat/completions/render", body={"messages": EMBEDDINGS}, cast_to=object)
        assert found.value.param == "unsupported_modality"
        assert found.value.type == "InexactRouting"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one", "two"])
def test_a_model_that_cannot_be_loaded_ends_the_server(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-m", "mmroute", "serve", str(tmp_path / "empty"), "--port", "0"]
    command += options
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "mmroute: unknown_family" in result.stderr or "missing_file" in result.stderr


def test_a_server_leaves_its_successors_socket(directory: str, tmp_path: Path) -> None:
    """Two on one path: the first has stopped to listen, and a request of it still runs."""
    path, logs = tmp_path / "s", [tmp_path / "log-0", tmp_path / "log-1"]
    where = ("--uds", str(path), "--drain-seconds", "0")
    with process(directory, *where, log=logs[0]) as first, connected(uds=str(path)) as client:
        while not path.exists():
            time.sleep(0.02)
        wait_until_healthy(client, first, logs[0])
        first.send_signal(signal.SIGTERM)
        while path.exists():  # it goes when listening ends, before the process does
            assert first.poll() is None
            time.sleep(0.005)
        with process(directory, *where, log=logs[1]) as second, connected(uds=str(path)) as after:
            while not path.exists():
                assert second.poll() is None, logs[1].read_text()
                time.sleep(0.02)
            assert first.wait(20) == 0
            wait_until_healthy(after, second, logs[1])
            assert path.exists()


def test_a_port_that_is_taken(directory: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "mmroute", "serve", directory, "--port", port]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "could not listen" in result.stderr
    assert "Address already in use" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "b", "--served-model-name", "x"], "--served-model-name"),
        (["=a"], "NAME=MODEL"),
        (["x=a", "y=b", "--model-id", "z=i"], "found z=i"),
        (["x=a", "y=b", "--model-id", "i"], "NAME=…"),
        (["x=a", "x=b"], "'x'"),
        (["a", "--image-network", "10.0.0.0/8"], "--image-host"),
        (["a", "--image-host", "http://x"], "hosts"),
        (["a", "--inexact", "fallback"], "fallback"),
        (["a", "--fallback-url", "x"], "fallback URL"),
        (["a", "--max-concurrency", "0"], "max_concurrency"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_keys_come_from_the_environment_as_well(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr("mmroute.server.run.serve", lambda *given: found.append(given))
    monkeypatch.setenv("MMROUTE_API_KEY", "one")
    monkeypatch.setenv("MMROUTE_FALLBACK_API_KEY", "two")
    monkeypatch.setenv("MMROUTE_PORT", "8001")
    monkeypatch.setenv("MMROUTE_EVENTS", "tcp://engine:5557")
    assert main(["serve", f"a,b={directory}", "--fallback-url", "http://x", "--encoder",
                 "tokenizers"]) == 0  # fmt: skip
    ((sources, settings, listen, fast_paths),) = found
    assert (sources[0].names, sources[0].model) == (("a", "b"), directory)
    assert sources[0].events == "tcp://engine:5557"
    assert (settings.api_keys, settings.fallback_api_key) == (("one",), "two")
    assert (listen.host, listen.port, listen.uds) == ("127.0.0.1", 8001, None)
    assert fast_paths.encoder == "tokenizers"


def test_options_in_a_file(
    directory: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: list[Any] = []
    monkeypatch.setattr("mmroute.server.run.serve", lambda *given: found.append(given))
    monkeypatch.setenv("MMROUTE_WORKERS", "3")
    monkeypatch.setenv("MMROUTE_STRICT", "yes")
    file = tmp_path / "serve.yaml"
    file.write_text(
        f"models: ['a={directory}']\nworkers: 2\nport: 9000\nmax-body-bytes: 1000\n"
        "api-key: [one, two]\nenable-request-id-headers: true\n",
        encoding="utf-8",
    )
    assert main(["serve", "--config", str(file), "--port", "9001"]) == 0
    ((sources, settings, listen, _),) = found
    assert sources[0].names == ("a",)
    assert (settings.workers, settings.max_body_bytes, listen.port) == (3, 1000, 9001)
    assert settings.api_keys == ("one", "two")
    assert settings.strict
    assert settings.request_id_headers
    assert main(["serve", "--config", str(file), "--check-config"]) == 0
    assert len(found) == 1
    file.write_text("ports: 1\n", encoding="utf-8")
    assert main(["serve", "a", "--config", str(file)]) == 2
    assert "ports" in capsys.readouterr().err
    assert main(["serve", "x=a", "x=b", "--check-config"]) == 2


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
        while "mmroute_links_in_flight 1.0" not in client.get("/metrics").text:
            time.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        asking.join(10)
        assert not answers, "the link has ten seconds, and then its request has an answer"


@pytest.fixture
def silent_host() -> Iterator[int]:
    """The port of a server that accepts and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_successor_takes_the_socket_of_a_server_that_drains(
    directory: str, tmp_path: Path
) -> None:
    path, logs = tmp_path / "s", [tmp_path / "log-0", tmp_path / "log-1"]
    where = (directory, "--uds", str(path), "--drain-seconds", "60")
    with process(*where, log=logs[0]) as first, connected(uds=str(path)) as client:
        while not path.exists():
            time.sleep(0.02)
        wait_until_healthy(client, first, logs[0])
        command = [sys.executable, "-m", "mmroute", "serve", *where]
        early = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert early.returncode == 1
        assert "Address already in use" in early.stderr
        first.send_signal(signal.SIGTERM)
        while client.get("/health").status_code == httpx.codes.OK:
            time.sleep(0.02)
        with process(*where, log=logs[1]) as second, connected(uds=str(path)) as after:
            wait_until_healthy(after, second, logs[1])
            assert first.poll() is None
            first.send_signal(signal.SIGINT)
            assert first.wait(20) == 130  # as of every command
            assert after.get("/health").status_code == httpx.codes.OK


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


@pytest.mark.parametrize(("module", "extra"), [("httptools", "serve"), ("zmq", "events")])
def test_without_the_extra(module: str, extra: str, directory: str) -> None:
    code = (
        "import sys, importlib.util as u; f = u.find_spec\n"
        f"u.find_spec = lambda n, *a: None if n == {module!r} else f(n, *a)\n"
        "from mmroute.cli import main; sys.exit(main(['serve', *sys.argv[1:]]))"
    )
    arguments = [directory, "--events", "tcp://127.0.0.1:1"]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"{module} not installed: pip install '.[{extra}]'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "must be from 0 to 65535, found '99999'"),
        (["--text-cache-mib", "-1"], "text_cache_bytes must be a number of bytes or 0"),
    ],
)
def test_wrong_settings_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "pixtral-12b-2409", *arguments]) == 2
    assert message in capsys.readouterr().err
