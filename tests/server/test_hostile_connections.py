"""Connections that end too late, or never: they are bounded, and the others are answered."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from chat_requests import CHAT, TOKENIZE
from server_helpers import listening
from waiting import until

from mmroute.server.front.listening import ConnectionLimits
from mmroute.server.models import Models
from mmroute.server.settings import ServerSettings

pytestmark = pytest.mark.process

TLS: Final = ssl.create_default_context()  # httpx reads certificates for each client else
LONG: Final = json.dumps({"prompt": "a b " * 100_000}).encode()
HEAD: Final = f"POST {TOKENIZE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()


@pytest.fixture(scope="module")
def hasty_port(models: Models) -> Iterator[int]:
    """A server that waits for nobody."""
    limits = ConnectionLimits(head_seconds=1.0, write_seconds=1.0)
    with listening(models, ServerSettings(max_body_bytes=1_000_000), limits) as client:
        yield port_of(client)


@pytest.fixture(scope="module")
def patient_port(models: Models) -> Iterator[int]:
    """A server of few connections, which may take their time."""
    limits = ConnectionLimits(connections=12, head_seconds=600.0, write_seconds=600.0)
    with listening(models, limits=limits) as client:
        client.close()
        yield port_of(client)


def port_of(client: httpx.Client) -> int:
    assert client.base_url.port is not None
    return client.base_url.port


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def get(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", verify=TLS)


def healthy(port: int) -> bool:
    try:
        return get(port, "/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("sent", [b"GET /health HTT", HEAD, HEAD + b"X-A: "])
def test_half_a_head_is_not_waited_for(hasty_port: int, sent: bytes) -> None:
    with connected(hasty_port) as connection:
        connection.sendall(sent)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        while answer:
            answer = connection.recv(4096)  # until it is closed


def test_a_silent_connection_is_closed_without_a_word(hasty_port: int) -> None:
    """Clients open connections before they need them, and take any answer for theirs."""
    with connected(hasty_port) as connection:
        assert connection.recv(4096) == b""


def test_a_second_head_is_not_waited_for_either(hasty_port: int) -> None:
    with connected(hasty_port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea")
        received = b""
        while part := connection.recv(4096):
            received += part
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in received


def test_who_sends_too_much_is_told_so(hasty_port: int) -> None:
    """And not reset, before it has read that."""
    with connected(hasty_port) as connection:
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
        connection.settimeout(60)
        connection.connect(("127.0.0.1", port))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG)
        yield connection


def sample(port: int, name: str) -> float:
    """A metric of a running server."""
    page = get(port, "/metrics").text
    return float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).split()[1])


def wait_for(port: int, name: str, value: float) -> None:
    until(lambda: sample(port, name) == value, lambda: (name, sample(port, name)))


def test_a_request_counts_until_its_last_byte_is_taken(patient_port: int) -> None:
    wait_for(patient_port, "mmroute_requests_in_flight", 0)
    held = sample(patient_port, "mmroute_held_bytes")
    with reading_nothing(patient_port):
        wait_for(patient_port, "mmroute_requests_in_flight", 1)
        # There is an answer, which is held as well.
        until(lambda: sample(patient_port, "mmroute_held_bytes") > held + len(LONG))
    wait_for(patient_port, "mmroute_requests_in_flight", 0)
    wait_for(patient_port, "mmroute_held_bytes", held)


def test_queued_work_of_clients_that_have_gone_is_dropped(patient_port: int) -> None:
    done = "mmroute_queue_duration_seconds_count"
    before = sample(patient_port, done)
    head = HEAD.replace(TOKENIZE.encode(), CHAT.encode())
    body = json.dumps({"messages": [{"role": "user", "content": "a b " * 200_000}]}).encode()
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    gone = []
    for _ in range(10):
        connection = connected(patient_port)
        connection.sendall(request)
        gone.append(connection)
    for connection in gone:
        connection.close()
    wait_for(patient_port, "mmroute_requests_in_flight", 0)
    assert sample(patient_port, done) - before < 2 * len(gone)  # to parse, and to answer


def test_answers_that_nobody_reads_are_dropped(hasty_port: int) -> None:
    with reading_nothing(hasty_port) as connection, pytest.raises(ConnectionError):
        until(lambda: connection.sendall(b"a"))  # it fails once the server has dropped it


def test_connections_are_bounded_and_the_server_is_reachable_after_them(patient_port: int) -> None:
    many = [connected(patient_port) for _ in range(12)]
    with connected(patient_port) as refused:
        refused.sendall(HEAD + b"Content-Length: 15\r\n\r\n" + b'{"prompt": "a"}')
        assert refused.recv(4096).startswith(b"HTTP/1.1 503 ")
    for connection in many:
        connection.close()
    until(lambda: healthy(patient_port))


@pytest.mark.parametrize("sent", [b"", b"GET /hea", HEAD, HEAD + b"Content-Length: 9\r\n\r\n"])
def test_probes_are_answered_beside_connections_that_stay(patient_port: int, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connected(patient_port)).sendall(sent)
        assert healthy(patient_port)
        assert get(patient_port, "/livez").status_code == httpx.codes.OK
        assert sample(patient_port, "mmroute_connections") >= 12
    until(lambda: sample(patient_port, "mmroute_connections") <= 1)
