"""HTTP/1.1 as its standard says, through the socket: a corpus, and requests at random."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import random
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from http_client import Answer, connected
from processor import at_present

from mmroute.server.front.connections import Front
from mmroute.server.front.listening import ConnectionLimits
from mmroute.server.front.request_parser import MalformedError, RequestParser
from mmroute.server.models import Models
from mmroute.server.service import Service
from mmroute.server.settings import AccessLog, ServerSettings

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


@asynccontextmanager
async def front_of(
    models: Models, settings: ServerSettings | None = None, **limits: Any
) -> AsyncIterator[Front]:
    service = Service(models, settings or ServerSettings(access_log=AccessLog.NONE))
    front = Front(service, ConnectionLimits(**limits))
    yield front
    await front.close(0)
    await service.close()


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
    if len(whole) < SHORT:
        ways.append([whole[at : at + 1] for at in range(len(whole))])
    heads = (0,) if whole.startswith(b"HEAD ") else ()
    final = [status for status in case["statuses"] if status >= 200]

    async def ask() -> None:
        async with front_of(models) as front:
            for segments in ways:
                async with connected(front) as line:
                    await line.send(segments)
                    answers = await line.answers(heads, wanted=len(final))
                    found = [answer.status for answer in answers]
                    # Who has sent the body already need not be told to go on (9110, 10.1.1).
                    assert found == case["statuses"] or (segments is not given and found == final)
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
    front: Front, segments: Sequence[bytes], heads: Sequence[int] = (), wanted: int | None = None
) -> tuple[list[Answer], bool]:
    async with connected(front) as line:
        await line.send(segments)
        return await line.answers(heads, wanted), line.closed


def test_requests_have_the_same_answers_however_they_are_framed_and_cut(models: Models) -> None:
    rng = random.Random(31)

    async def ask() -> None:
        async with front_of(models) as front:
            for _ in range(12):
                requests = [a_request(rng) for _ in range(rng.randrange(1, 9))]
                heads = [number for number, (*_, is_head) in enumerate(requests) if is_head]
                async with connected(front) as line:
                    alone = [await line.ask(request) for request, _, _ in requests]
                for way in (0, 1):
                    whole = b"".join((sized, chunks)[way] for sized, chunks, _ in requests)
                    for segments in ([whole], cut(rng, whole), cut(rng, whole)):
                        found = await asked(front, segments, heads, wanted=len(alone))
                        assert found == (alone, False)

    asyncio.run(ask())


def test_damaged_requests_have_the_same_answers_however_they_are_cut(models: Models) -> None:
    """Bytes are changed, dropped and doubled; whatever comes of it, segments decide nothing."""
    rng = random.Random(32)
    marks = [b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b";", b"0", b"f", b"\xff", b"chunked", b","]

    async def ask() -> None:
        async with front_of(models) as front:
            for _ in range(120):
                raw = bytearray(b"".join(rng.choice(a_request(rng)[:2]) for _ in range(2)))
                for _ in range(rng.randrange(1, 4)):
                    at = rng.randrange(min(len(raw), 400))
                    raw[at : at + rng.randrange(3)] = rng.choice(marks)
                whole = bytes(raw).replace(b"HEAD ", b"GET ")
                first = await asked(front, [whole])
                assert all(
                    answer.status < 500 or answer.status in (501, 505) for answer in first[0]
                )
                assert await asked(front, cut(rng, whole)) == first

    asyncio.run(ask())


def read(parser: RequestParser, raw: bytes) -> object:
    """What a parser makes of the next request; the status of its refusal if it is none."""
    parser.receive(bytearray(raw), len(raw))
    try:
        head = parser.head()
        body = b"" if head is None else bytes(parser.body())
    except MalformedError as error:
        return error.status
    parser.keep()
    told = parser.complete, parser.keep_alive, parser.expects_continue, parser.unread
    return head and (head.method, head.path, head.query, head.headers, body, *told)


def test_a_head_that_resembles_the_last_one_is_read_as_the_first_of_a_connection() -> None:
    rng = random.Random(33)
    lengths = [
        "0", "1", "05", "5" * 19, "9" * 19, "9" * 20, "0" * 30, "", "-1", "+1", "1 ", " 1", "\t1",
        "1_0", "0x1", "1,1", "1;", "1\n", "1\r\nContent-Length: 1", "1\r\nX:1", "1\r\n 1", "\xb2",
    ]  # fmt: skip
    others = [
        "", "X: 1", "Expect: 100-continue", "Connection: close", "Transfer-Encoding: chunked",
        "Upgrade: h2c\r\nConnection: upgrade", "Content-Length: 5", "X: \r\n y", "Host: b", "X: ",
    ]  # fmt: skip
    followed = 0
    for _ in range(3_000):
        fields = ["Host: a", rng.choice(others)]
        name = rng.choice(["Content-Length", "content-length", "X", "X: Content-Length", " "])
        fields.insert(rng.randrange(3), name + rng.choice([": ", ":"]) + "LENGTH")
        line = rng.choice(["POST /LENGTH?a HTTP/1.1", "GET / HTTP/1.1", "POST /a HTTP/1.0"])
        head = "\r\n".join([line, *filter(None, fields), "\r\n"])
        first = rng.choice(lengths[:3])
        parser = RequestParser(1 << 10)
        read(parser, head.replace("LENGTH", first).encode() + int(first) * b"x")
        if not parser.complete or not parser.keep_alive or parser.unread:
            continue
        followed += 1
        raw = head.replace("LENGTH", rng.choice(lengths)).encode("latin-1") + b"yyyyy"
        assert read(parser, raw) == read(RequestParser(1 << 10), raw)
    assert followed > 300


def in_thread(front: Front, raw: bytes) -> Awaitable[None]:
    """Send without waiting for the event loop, and take all answers beside that."""
    server, client = socket.socketpair()

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
        await asyncio.get_running_loop().connect_accepted_socket(front.connection, server)
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
        server, client = socket.socketpair()
        async with front_of(models) as front:
            await asyncio.get_running_loop().connect_accepted_socket(front.connection, server)
            return await asyncio.to_thread(send, client)

    in_chunks, whole, status = asyncio.run(ask())
    assert json.loads(whole)["prompt"]
    assert (in_chunks, status) == (whole, 200)


def test_probes_are_answered_beside_900_half_heads(models: Models) -> None:
    """The default limit is reached by then, and so is that of connections beyond it."""
    half = PROBE[:-3]

    async def ask() -> list[int]:
        async with front_of(models) as front, contextlib.AsyncExitStack() as stack:
            for _ in range(900):
                await (await stack.enter_async_context(connected(front))).send([half])
            found = []
            for path in (b"/health", b"/livez"):
                line = await stack.enter_async_context(connected(front))
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
        async with front_of(models) as front:
            watching = asyncio.create_task(watch())
            await in_thread(front, raw)
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
        async with front_of(models) as front, connected(front) as line:
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

    async def ask() -> tuple[set[object], bytes]:
        async with front_of(models, settings) as front:
            known = {"none", "/admin/models", "/admin/models/", *front.service._routes}
            async with connected(front) as line:
                for _ in range(500):
                    path = "/" + "".join(rng.choices(pieces, k=rng.randrange(1, 4))).lstrip("/")
                    method = rng.choice(methods)
                    await line.ask(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                page = await line.ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            assert page.status == 200
            return {
                labels[0] for labels in front.service.metrics._seconds._counts
            } - known, page.body

    unknown, page = asyncio.run(ask())
    assert not unknown
    assert b"admin/models/x" not in page
