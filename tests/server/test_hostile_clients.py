"""Clients that mean no good, or are broken: they are bounded, and the others are answered."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from media_files import png_url
from server_helpers import (
    CHAT,
    COMPLETION,
    HI,
    MESSAGES,
    RESPONSES,
    TOKENIZE,
    error_of,
    metric,
    running,
    serving,
)
from waiting import until

from mmroute.api.vllm import ApiError
from mmroute.net.links import ImageLinks
from mmroute.server.app import create_app
from mmroute.server.bodies import Body, check_body
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings

MODEL: Final = "small-qwen2.5-vl"
JSON: Final = {"content-type": "application/json"}
LINKS: Final = ImageLinks(hosts=("127.0.0.1",), networks=("127.0.0.1/32",), timeout=0.2)


def loaded(directory: Path, links: ImageLinks | None = None) -> Models:
    found = Models([ModelSource(str(directory), (MODEL,))], links=links)
    for entry in found.load():
        entry.loading.result(60)
    return found


@pytest.fixture(scope="module")
def models(small_model: Callable[[str], Path]) -> Models:
    return loaded(small_model(MODEL))


def pictures(*urls: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"messages": [{"role": "user", "content": parts}], "mm_payload": "none"}


@pytest.mark.parametrize(
    "url",
    [
        '"http://127.0.0.1:9/a.png"',
        '"HTTP://127.0.0.1:9/a.png"',
        '"\\u0068ttp://127.0.0.1:9/a.png"',
        '"h\\u0074tps:\\/\\/127.0.0.1:9/a.png"',
    ],
)
def test_a_link_is_followed_in_a_thread_however_it_is_spelled(
    models: Models, threads: list[str], url: str
) -> None:
    """The event loop waits for no other server."""
    raw = json.dumps(pictures("LINK")).replace('"LINK"', url)
    with serving(models, ServerSettings(links=LINKS)) as client:
        client.post(CHAT, content=raw, headers=JSON)
    assert threads == ["mmroute-links"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.png", " http://127.0.0.1:9/a.png"])
def test_links_of_the_other_apis_are_followed_in_a_thread(
    models: Models, threads: list[str], url: str
) -> None:
    """A space before a link changes nothing: it is followed without it."""
    block = {"type": "image", "source": {"type": "url", "url": url}}
    item = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    message = {"role": "user", "content": [block]}
    with serving(models, ServerSettings(links=LINKS)) as client:
        client.post(MESSAGES, json={"model": MODEL, "max_tokens": 1, "messages": [message]})
        client.post(RESPONSES, json={"input": [item]})
    assert set(threads) == {"mmroute-links"}


def test_a_link_beside_another_is_followed_in_a_thread(models: Models, threads: list[str]) -> None:
    """Whatever the part says it is, and whichever of its links is read."""
    link, data = {"url": "http://127.0.0.1:9/a.png"}, {"url": png_url(8, 8)}
    with serving(models, ServerSettings(links=LINKS)) as client:
        for kind, other in (("image_url", "video_url"), ("video_url", "image_url")):
            part = {"type": "image_url", kind: link, other: data, "audio_url": data}
            client.post(CHAT, json={"messages": [{"role": "user", "content": [part]}]})
    assert set(threads) == {"mmroute-links"}


def test_many_small_pieces_of_data_urls_are_found_in_time() -> None:
    """Each of them costs a search; more than a few thousand are counted as text."""
    raw = b'{"prompt": ["' + b'data:;base64,", "' * 500_000 + b'"]}'
    began = time.thread_time()
    with pytest.raises(ApiError, match="commas"):
        check_body(Body(raw), ServerSettings())
    assert time.thread_time() - began < 2  # of the processor


@pytest.mark.parametrize(
    ("path", "body", "small"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "data:;base64," + "hi " * 9000}]}, False),
        (CHAT, pictures(*[png_url(8, 8)] * 60), False),
        (CHAT, pictures(png_url(8, 8)), True),
        (COMPLETION, {"prompt": ["a"] * 200}, False),
        (COMPLETION, {"prompt": ["a"]}, True),
        (COMPLETION, {"prompt": "a", "logit_bias": {str(n): 1 for n in range(20_000)}}, False),
    ],
)
def test_what_takes_long_goes_to_a_thread(
    models: Models, threads: list[str], path: str, body: dict[str, Any], small: bool
) -> None:
    with serving(models) as client:
        client.post(path, json=body)
    assert threads
    assert {name == "mmroute-work" for name in threads} == {not small}


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b'{"messages": [' + b"[]," * 600_000 + b"[]]}", "structure"),
        (b'{"messages": [' + b'{"":' * 600_000, "structure"),
        (b'{"prompt": "' + b"a" * (17 << 20) + b'"}', "text"),
        (b'{"prompt": "data:image/png;base64,' + b"a" * (17 << 20) + b'"}', "text"),
        ('{"prompt": "data:image/png;base64,' + "a" * (17 << 20) + '😀"}', "text"),
    ],
)
def test_text_and_structure_have_limits_of_their_own(
    models: Models, body: bytes | str, limit: str
) -> None:
    with serving(models) as client:
        answer = client.post(TOKENIZE, content=body, headers=JSON)
        assert error_of(answer) == (413, "RequestTooLargeError", None)
        assert metric(client, f'mmroute_rejected_total{{limit="{limit}"}}') == 1


def test_a_picture_may_be_larger_than_any_text(models: Models) -> None:
    body = pictures("data:image/png;base64," + "A" * (17 << 20))
    with serving(models) as client:
        answer = client.post(CHAT, json=body)
    assert error_of(answer) == (400, "BadRequestError", None)  # no picture, but looked at


@pytest.fixture
def silent_host() -> Iterator[tuple[int, threading.Event]]:
    """The port of a server that answers when it may."""
    may_answer = threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            may_answer.wait(30)
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_address[1], may_answer
    may_answer.set()
    server.shutdown()
    server.server_close()


@pytest.mark.process
def test_links_that_are_slow_leave_threads_for_text(
    small_model: Callable[[str], Path], silent_host: tuple[int, threading.Event]
) -> None:
    port, may_answer = silent_host
    links = replace(LINKS, timeout=20)
    settings = ServerSettings(links=links, workers=1, link_workers=3, worker_bytes=0)
    models = loaded(small_model(MODEL), links)

    async def ask() -> None:
        transport = httpx.ASGITransport(create_app(models, settings))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://server", timeout=30
        ) as client:
            slow = [
                asyncio.create_task(
                    client.post(CHAT, json=pictures(f"http://127.0.0.1:{port}/{n}.png"))
                )
                for n in range(3)
            ]
            while "mmroute_links_in_flight 3.0" not in (await client.get("/metrics")).text:
                assert not any(task.done() for task in slow)
                await asyncio.sleep(0.01)
            text = await client.post(CHAT, json={"messages": HI})
            assert text.status_code == 200  # while all links wait
            more = await client.post(CHAT, json=pictures(f"http://127.0.0.1:{port}/more.png"))
            assert error_of(more) == (503, "ServiceUnavailableError", None)
            assert not any(task.done() for task in slow)
            may_answer.set()
            assert {answer.status_code for answer in await asyncio.gather(*slow)} == {422}
            again = await client.post(CHAT, json=pictures(f"http://127.0.0.1:{port}/x.png"))
            assert again.status_code == 422  # their places were given back

    asyncio.run(ask())


@pytest.fixture(scope="module")
def server_port(
    small_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """A server with narrow limits."""
    log = tmp_path_factory.mktemp("hostile") / "log"
    options = (
        "--max-connections", "12", "--head-timeout", "1", "--write-timeout", "1",
        "--max-body-bytes", "1000000",
    )  # fmt: skip
    with running(str(small_model(MODEL)), *options, log=log) as (server, client):
        client.close()
        assert client.base_url.port is not None
        yield client.base_url.port
        assert server.poll() is None
        assert "Traceback" not in log.read_text()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=15)


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


LONG: Final = json.dumps({"prompt": "a b " * 100_000}).encode()
HEAD: Final = f"POST {TOKENIZE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()


@pytest.mark.process
@pytest.mark.parametrize("sent", [b"GET /health HTT", HEAD, HEAD + b"X-A: "])
def test_half_a_head_is_not_waited_for(server_port: int, sent: bytes) -> None:
    with connected(server_port) as connection:
        connection.sendall(sent)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        while answer:
            answer = connection.recv(4096)  # until it is closed


@pytest.mark.process
def test_a_silent_connection_is_closed_without_a_word(server_port: int) -> None:
    """Clients open connections before they need them, and take any answer for theirs."""
    with connected(server_port) as connection:
        assert connection.recv(4096) == b""


@pytest.mark.process
def test_a_second_head_is_not_waited_for_either(server_port: int) -> None:
    with connected(server_port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea")
        received = b""
        while part := connection.recv(4096):
            received += part
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in received


@pytest.mark.process
def test_who_sends_too_much_is_told_so(server_port: int) -> None:
    """And not reset, before it has read that."""
    with connected(server_port) as connection:
        connection.sendall(HEAD + b"Content-Length: 30000000\r\n\r\n")
        for _ in range(30):
            connection.sendall(b"a" * 1_000_000)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"RequestTooLargeError" in answer


@contextlib.contextmanager
def reading_nothing(port: int) -> Iterator[socket.socket]:
    """A client that asks for a long answer."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(15)
        connection.connect(("127.0.0.1", port))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG)
        yield connection


def sample(port: int, name: str) -> float:
    """A metric of a running server."""
    page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    return float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).split()[1])


def wait_for(port: int, name: str, value: float) -> None:
    until(lambda: sample(port, name) == value, lambda: (name, sample(port, name)))


@pytest.mark.process
def test_a_request_counts_until_its_last_byte_is_taken(server_port: int) -> None:
    wait_for(server_port, "mmroute_requests_in_flight", 0)
    held = sample(server_port, "mmroute_held_bytes")
    with reading_nothing(server_port):
        wait_for(server_port, "mmroute_requests_in_flight", 1)
        # There is an answer, which is held as well.
        until(lambda: sample(server_port, "mmroute_held_bytes") > held + len(LONG))
    wait_for(server_port, "mmroute_requests_in_flight", 0)
    wait_for(server_port, "mmroute_held_bytes", held)


@pytest.mark.process
def test_queued_work_of_clients_that_have_gone_is_dropped(server_port: int) -> None:
    done = "mmroute_queue_duration_seconds_count"
    before = sample(server_port, done)
    head = HEAD.replace(TOKENIZE.encode(), CHAT.encode())
    body = json.dumps({"messages": [{"role": "user", "content": "a b " * 100_000}]}).encode()
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    gone = []
    for _ in range(10):
        connection = connected(server_port)
        connection.sendall(request)
        gone.append(connection)
    for connection in gone:
        connection.close()
    wait_for(server_port, "mmroute_requests_in_flight", 0)
    assert sample(server_port, done) - before < 2 * len(gone)  # to parse, and to answer


@pytest.mark.process
def test_answers_that_nobody_reads_are_dropped(server_port: int) -> None:
    with reading_nothing(server_port) as connection, pytest.raises(ConnectionError):
        until(lambda: connection.sendall(b"a"))  # it fails once the server has dropped it


@pytest.mark.process
def test_connections_are_bounded_and_the_server_is_reachable_after_them(server_port: int) -> None:
    many = [connected(server_port) for _ in range(12)]
    with connected(server_port) as refused:
        refused.sendall(HEAD + b"Content-Length: 15\r\n\r\n" + b'{"prompt": "a"}')
        assert refused.recv(4096).startswith(b"HTTP/1.1 503 ")
    for connection in many:
        connection.close()
    until(lambda: healthy(server_port))


@pytest.mark.process
@pytest.mark.parametrize("sent", [b"", b"GET /hea", HEAD, HEAD + b"Content-Length: 9\r\n\r\n"])
def test_probes_are_answered_beside_connections_that_stay(server_port: int, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connected(server_port)).sendall(sent)
        assert healthy(server_port)
        assert httpx.get(f"http://127.0.0.1:{server_port}/livez").status_code == httpx.codes.OK
        assert sample(server_port, "mmroute_connections") >= 12
    until(lambda: sample(server_port, "mmroute_connections") <= 1)
