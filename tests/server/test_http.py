"""HTTP/1.1 as its standard says, through the socket: a corpus, and requests at random."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import random
import re
import socket
import time
import tracemalloc
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, EMBEDDINGS
from http_client import Answer, answering, connected
from processor import at_present
from scripted_server import ScriptedServer

from mmroute.server.models import Models
from mmroute.server.run import Server
from mmroute.server.settings import AccessLog, InexactPolicy, ServerSettings

CASES: Final[list[dict[str, Any]]] = [
    json.loads(line)
    for line in Path(__file__)
    .with_name("http_cases.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
PROBE: Final = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD: Final = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
SHORT: Final = 400  # bytes that are sent one by one


def raw_segments(case: dict[str, Any]) -> list[bytes]:
    """Those of a case; a pair is a text and how often it is repeated."""
    parts = [part if isinstance(part, str) else part[0] * part[1] for part in case["segments"]]
    return [part.encode("latin-1") for part in parts]


def cut(rng: random.Random, raw: bytes) -> list[bytes]:
    """The same bytes in other segments."""
    places = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.randrange(1, 12)))
    return [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True) if a < b]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case_of_the_standard(models: Models, case: dict[str, Any]) -> None:
    given = raw_segments(case)
    whole = b"".join(given)
    ways = [given, [whole], cut(random.Random(case["name"]), whole)]
    if case.get("ways") == "given":
        del ways[1:]
    elif len(whole) < SHORT:
        ways.append([whole[at : at + 1] for at in range(len(whole))])
    heads = (0,) if whole.startswith(b"HEAD ") else ()
    final = [status for status in case["statuses"] if status >= 200]

    async def ask() -> None:
        async with answering(models) as server:
            for segments in ways:
                async with connected(server) as line:
                    await line.send(segments)
                    answers = await line.answers(heads, wanted=len(final))
                    found = [answer.status for answer in answers]
                    # Who has sent the body already need not be told to go on (9110, 10.1.1).
                    assert found == case["statuses"] or (segments is not given and found == final)
                    if case["then"] != "lingers":  # until the rest of a refused body is read
                        assert line.closed == (case["then"] == "closed")
                    if case["then"] == "kept":
                        assert (await line.ask(PROBE)).status == 200

    asyncio.run(ask())


def a_request(rng: random.Random) -> tuple[bytes, bytes, bool]:
    """A correct request, the same one in the other framing, and whether it is a HEAD."""
    if rng.random() < 0.4:
        method = rng.choice(["GET", "HEAD", "OPTIONS", "DELETE"])
        path = rng.choice(["/livez", "/nope", "/tokenize", "/version?x", "/%2e%2e/a", "//"])
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nX: {rng.random()}\r\n\r\n".encode()
        return head, head, method == "HEAD"
    prompt = "".join(rng.choices('ab c"\\\n\r\n\x00é😀0', k=rng.choice([0, 3, 30, 400, 9000])))
    body = json.dumps({"prompt": prompt}, ensure_ascii=rng.random() < 0.5).encode()
    if rng.random() < 0.1:
        body = body[:-1]  # no JSON
    chunks, at = b"", 0
    while at < len(body):
        size = rng.choice([1, 2, 7, 60, 1000])
        part = body[at : at + size]
        extension = rng.choice([b"", b"", b";a", b';a="b;c"'])
        chunks += b"%x%b\r\n%b\r\n" % (len(part), extension, part)
        at += size
    chunks += b"0\r\n" + rng.choice([b"", b"A: b\r\n", b"A: b\r\nC: \r\n"]) + b"\r\n"
    return (
        HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        False,
    )


async def asked(
    server: Server, segments: Sequence[bytes], heads: Sequence[int] = (), wanted: int | None = None
) -> tuple[list[Answer], bool]:
    async with connected(server) as line:
        await line.send(segments)
        return await line.answers(heads, wanted), line.closed


def test_requests_have_the_same_answers_however_they_are_framed_and_cut(models: Models) -> None:
    rng = random.Random(31)

    async def ask() -> None:
        async with answering(models) as server:
            for _ in range(12):
                requests = [a_request(rng) for _ in range(rng.randrange(1, 9))]
                heads = [number for number, (*_, is_head) in enumerate(requests) if is_head]
                async with connected(server) as line:
                    alone = [await line.ask(request) for request, _, _ in requests]
                whole = b"".join(sized for sized, _, _ in requests)
                for segments in ([whole], cut(rng, whole), cut(rng, whole)):
                    found = await asked(server, segments, heads, wanted=len(alone))
                    assert found == (alone, False)
                async with connected(server) as line:  # nothing is read behind chunks
                    for (_, chunks, is_head), answer in zip(requests, alone, strict=True):
                        await line.send(cut(rng, chunks))
                        assert await line.answers((0,) * is_head, wanted=1) == [answer]

    asyncio.run(ask())


def test_damaged_requests_have_the_same_answers_however_they_are_cut(models: Models) -> None:
    """Bytes are changed, dropped and doubled; whatever comes of it, segments decide nothing."""
    rng = random.Random(32)
    marks = [b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b";", b"0", b"f", b"\xff", b"chunked", b","]

    async def ask() -> None:
        async with answering(models) as server:
            for _ in range(120):
                raw = bytearray(a_request(rng)[0] + rng.choice(a_request(rng)[:2]))
                for _ in range(rng.randrange(1, 4)):
                    at = rng.randrange(min(len(raw), 400))
                    raw[at : at + rng.randrange(3)] = rng.choice(marks)
                whole = bytes(raw).replace(b"HEAD ", b"GET ")
                first = await asked(server, [whole])
                assert all(
                    answer.status < 500 or answer.status in (501, 505) for answer in first[0]
                )
                assert await asked(server, cut(rng, whole)) == first

    asyncio.run(ask())


def in_thread(server: Server, raw: bytes) -> Awaitable[None]:
    """Send without waiting for the event loop, and take all answers beside that."""
    own, client = socket.socketpair()

    def take() -> None:
        while client.recv(1 << 20):
            pass

    def send() -> None:
        with client, ThreadPoolExecutor(1) as beside:
            client.settimeout(60)
            taking = beside.submit(take)
            with contextlib.suppress(ConnectionError):  # it was refused, and goes on sending
                client.sendall(raw)
                client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                taking.result()

    async def run() -> None:
        await asyncio.get_running_loop().connect_accepted_socket(server.connection, own)
        await asyncio.to_thread(send)

    return run()


def chunked(body: bytes, size: int) -> bytes:
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(
        [HEAD, b"Transfer-Encoding: chunked\r\n\r\n"]
        + [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
        + [b"0\r\n\r\n"]
    )


def test_a_body_that_pythons_client_sends_piece_by_piece(models: Models) -> None:
    """Each number is a chunk of its own: there is more framing than the most bytes of a head."""
    pieces = [*json.JSONEncoder().iterencode({"tokens": [7] * 20_000})]

    def send(client: socket.socket) -> tuple[bytes, bytes, int]:
        connection = http.client.HTTPConnection("a", timeout=60)
        connection.sock = client
        kind, path = {"Content-Type": "application/json"}, "/detokenize"
        connection.request("POST", path, (piece.encode() for piece in pieces), kind)
        in_chunks = connection.getresponse().read()
        connection.request("POST", path, "".join(pieces), kind)
        whole = connection.getresponse().read()
        connection.request("GET", "/livez")
        status = connection.getresponse().status
        connection.close()
        return in_chunks, whole, status

    async def ask() -> tuple[bytes, bytes, int]:
        own, client = socket.socketpair()
        async with answering(models) as server:
            await asyncio.get_running_loop().connect_accepted_socket(server.connection, own)
            return await asyncio.to_thread(send, client)

    in_chunks, whole, status = asyncio.run(ask())
    assert json.loads(whole)["prompt"]
    assert (in_chunks, status) == (whole, 200)


def test_long_answers_follow_each_other(models: Models) -> None:
    """A client asks again as soon as it has the last byte, which it may know before the server."""
    raw = json.dumps({"prompt": "a b " * 100_000}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(raw) + raw

    async def ask() -> set[Answer]:
        async with answering(models) as server, connected(server) as line:
            return {await line.ask(request) for _ in range(8)}

    (answer,) = asyncio.run(ask())
    assert answer.status == 200


def test_probes_are_answered_beside_900_half_heads(models: Models) -> None:
    """The default limit is reached by then, and so is that of connections beyond it."""
    half = PROBE[:-3]

    async def ask() -> list[int]:
        async with answering(models) as server, contextlib.AsyncExitStack() as stack:
            for _ in range(900):
                await (await stack.enter_async_context(connected(server))).send([half])
            found = []
            for path in (b"/health", b"/livez"):
                line = await stack.enter_async_context(connected(server))
                request = b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path
                found.append((await line.ask(request)).status)
            return found

    assert asyncio.run(ask()) == [200, 200]


MEGABYTE: Final = 1_000_000
FLOODS: Final = {
    "chunks of two bytes": chunked(b" " * (MEGABYTE // 7 * 2), 2),
    "chunks of one byte": chunked(b" " * (MEGABYTE // 6), 1),
    "requests": b"GET /livez HTTP/1.1\r\nHost:\r\n\r\n" * (MEGABYTE // 90),
    "requests with bodies": (HEAD + b"Content-Length: 2\r\n\r\n{}") * (MEGABYTE // 270),
    "fields": PROBE[:-2] + b"a:\r\n" * (MEGABYTE // 4),
    "names of fields": PROBE[:-2] + b"".join(b"%x:\r\n" % n for n in range(MEGABYTE // 8)),
    "empty lines": b"\r\n" * (MEGABYTE // 2),
    "extensions": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1;aaaa\r\na\r\n" * 90_000,
    "trailers": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:b\r\n" * 200_000,
}


async def longest_turn(models: Models, raw: bytes) -> float:
    """The most processor time that the loop's thread works in one turn while this arrives."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    gc.disable()  # a search for garbage walks what all other tests hold
    try:
        async with answering(models) as server:
            watching = asyncio.create_task(watch())
            await in_thread(server, raw)
            watching.cancel()
    finally:
        gc.enable()
    return longest


@pytest.mark.parametrize("flood", FLOODS)
def test_a_megabyte_does_not_hold_the_event_loop(models: Models, flood: str) -> None:
    """No turn of the loop takes more than 50 ms; what is in its way once is another's work."""
    turns = (asyncio.run(longest_turn(models, FLOODS[flood])) for _ in range(10))
    assert any(turn < 0.05 or turn < at_present(0.05) for turn in turns)


@pytest.mark.parametrize("size", [1, 2, 5000])
def test_what_is_received_takes_at_most_twice_its_bytes(models: Models, size: int) -> None:
    body = b" " * (1 << 15)
    raw = chunked(body, size)
    half = raw[: -len(b"0\r\n\r\n")]

    async def ask() -> int:
        async with answering(models) as server, connected(server) as line:
            await line.send([PROBE])
            await line.answers(wanted=1)
            tracemalloc.start()
            try:
                for at in range(0, len(half), 1 << 16):
                    await line.send([half[at : at + (1 << 16)]])
                held = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            return held

    assert asyncio.run(ask()) < 2 * len(body)


@pytest.mark.process
@pytest.mark.parametrize(("status", "answered"), [(460, 460), (499, 499), (520, 520), (999, 502)])
def test_a_status_of_the_fallback_that_no_standard_has(
    models: Models, status: int, answered: int
) -> None:
    raw = json.dumps({"messages": EMBEDDINGS}).encode()
    head = HEAD.replace(b"/tokenize", CHAT.encode())

    async def ask(url: str) -> list[int]:
        settings = ServerSettings(inexact=InexactPolicy.FALLBACK, fallback_url=url)
        async with answering(models, settings) as server, connected(server) as line:
            first = await line.ask(head + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
            return [first.status, (await line.ask(PROBE)).status]

    with ScriptedServer() as fallback:
        fallback.routes[CHAT] = (status, {"error": "of a proxy"})
        assert asyncio.run(ask(fallback.url)) == [answered, 200]


def test_no_request_without_a_key_adds_a_label(models: Models) -> None:
    """Labels are routes, whatever path and method a client draws."""
    rng = random.Random(14)
    settings = ServerSettings(admin_key="k", api_keys=("k",), access_log=AccessLog.NONE)
    pieces = [
        "/admin/models", "/admin/models/", "/admin", "/v1/models", "/metrics", "/tokenize", "/",
        "//", "%0d", "%0a", "%22", "%00", "x", "a" * 300, "?a=b", "%ff",
        "/v1/chat/completions/render",
    ]  # fmt: skip
    methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "M-SEARCH"]

    async def ask() -> str:
        async with answering(models, settings) as server, connected(server) as line:
            for _ in range(500):
                path = "/" + "".join(rng.choices(pieces, k=rng.randrange(1, 4))).lstrip("/")
                method = rng.choice(methods)
                await line.ask(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            page = await line.ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            return page.body.decode()

    page = asyncio.run(ask())
    labels = set(re.findall(r'_seconds_count\{route="([^"]*)"', page))
    known = {"none", "/admin/models", "/admin/models/", "/v1/models", "/metrics", "/tokenize"}
    assert labels <= known | {"/v1/chat/completions/render"}
    assert "none" in labels
