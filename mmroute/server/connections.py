"""HTTP/1.1: connections of clients that may be slow, silent or endless, each within its limits.

httptools takes requests apart. Deadlines are looked at together, a few times a second: a timer for
each request would cost more than most of what is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from email.utils import formatdate
from enum import IntEnum
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import httptools

from mmroute.server.errors import ApiError
from mmroute.server.exchange import CLIENT_HAS_GONE, Deferred, Exchange
from mmroute.server.http import Head, Response
from mmroute.server.listening import ConnectionLimits, Share
from mmroute.server.service import Service

__all__ = ["Connection", "Front"]

_READ: Final = 1 << 18  # bytes of one connection at a time
_TICK: Final = 0.25
_LINGER: Final = 5.0
_PUBLISHED_EVERY: Final = 1.0
# Sizes of chunks are no body; a byte of body has at most so many of them.
_CHUNKING: Final = 8
_MOST_PIPELINED: Final = 32
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REFUSAL: Final = b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_STATUS: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


class _Phase(IntEnum):
    """What a connection waits for."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3
    WRITE = 4
    """That the client takes the answer."""
    LINGER = 5
    """That the client closes: one that still sends would lose its answer to a reset."""


class Front:
    """All connections of a service. Belongs to one event loop.

    Args:
        service: answers their requests.
        limits: of connections.

    Attributes:
        connections: those that are open.
        empty: set while there is none.
        date: of the responses.
        share: of all connections, where there are several processes; else None.
        buffer: what arrives for any of them; it is taken apart before anything else is read.
    """

    def __init__(self, service: Service, limits: ConnectionLimits) -> None:
        self.service = service
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.share: Share | None = None
        self.seconds: Final = (  # for each phase
            limits.idle_seconds,
            limits.head_seconds,
            service.settings.request_timeout,
            math.inf,
            limits.write_seconds,
            _LINGER,
        )
        self.buffer: Final = memoryview(bytearray(_READ))
        service.metrics.connections.set_function(lambda: len(self.connections))
        self.empty = asyncio.Event()
        self.empty.set()
        self._due = self._publish = self.loop.time()
        self._tick()

    def connection(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    async def close(self, grace: float) -> None:
        """Close connections, each when its requests are answered; all after so many seconds."""
        self.service.drain.begun = True
        for connection in tuple(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.empty.wait(), grace)
        for connection in tuple(self.connections):
            connection.abort()
        self._ticking.cancel()
        await asyncio.sleep(0)  # each hears of it

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if self.share is not None:
            self.share.tell(len(self.connections))
        if not self.connections:
            self.empty.set()

    def _tick(self) -> None:
        now = self.loop.time()
        self.service.metrics.lag(max(0.0, now - self._due))
        self.date = f"date: {formatdate(usegmt=True)}\r\n"
        for connection in tuple(self.connections):
            if connection.deadline <= now:
                connection.expire()
        if now >= self._publish:
            self._publish = now + _PUBLISHED_EVERY
            self.service.metrics.publish()
        self._due = now + _TICK
        self._ticking = self.loop.call_at(self._due, self._tick)


class Connection(asyncio.BufferedProtocol):
    """A connection within its limits.

    Args:
        front: it belongs to.

    Attributes:
        deadline: for what it waits for, by the clock of the event loop.
    """

    def __init__(self, front: Front) -> None:
        self.deadline = math.inf
        self._front = front
        self._service = front.service
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._phase = _Phase.HEAD
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._in_head = False
        self._beside = self._body = 0  # bytes of the request that is being received
        self._receiving: Exchange | None = None
        self._waiting: deque[tuple[Exchange, Response | None]] = deque()
        self._current: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._status = CLIENT_HAS_GONE  # of the answer that is being taken
        self._untaken = 0
        self._paused = False
        self._deaf = False  # whatever else arrives is not looked at
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # to know when the last byte is taken
        self._front.connections.add(self)
        self._front.empty.clear()
        if len(self._front.connections) > self._front.limits.connections:
            self._service.metrics.rejected("connections")
            self._refuse(b"503 Service Unavailable\r\nRetry-After: 1")
        else:
            self._wait_for(_Phase.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.forget(self)
        self._deaf = True
        if self._task is not None:
            self._task.cancel()
        unanswered = [self._current, *(exchange for exchange, _ in self._waiting), self._receiving]
        self._waiting.clear()
        self._current = self._receiving = None
        for exchange in unanswered:
            if exchange is not None:
                self._service.end(exchange, CLIENT_HAS_GONE)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._front.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._deaf:
            return
        if self._phase is _Phase.IDLE:
            self._wait_for(_Phase.HEAD)
        self._beside += nbytes
        try:
            self._feed(self._front.buffer[:nbytes])
        except httptools.HttpParserError:
            self._refuse(b"400 Bad Request")
        if self._beside > self._front.limits.head_bytes + _CHUNKING * self._body and not self._deaf:
            self._refuse(b"431 Request Header Fields Too Large")

    def _feed(self, received: memoryview) -> None:
        """A wish for another protocol is passed over: Java's client has one in its first request.

        The parser takes what follows such a head for the other protocol, so another parser gets the
        same head without that wish.
        """
        while received:
            try:
                self._parser.feed_data(received)
            except httptools.HttpParserUpgrade as upgrade:
                received = received[upgrade.args[0] :]
            else:
                return
            if not self._deaf and not self._asks_for_upgrade():  # CONNECT
                self._deaf = True
                self.finish()
            if self._deaf:
                return
            method, version = self._parser.get_method(), self._parser.get_http_version()
            lines = [b"%b %b HTTP/%b" % (method, self._url, version.encode())]
            lines += [b"%b: %b" % pair for pair in self._headers.items() if pair[0] != b"upgrade"]
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(b"\r\n".join([*lines, b"\r\n"]))

    def _asks_for_upgrade(self) -> bool:
        return self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._phase is _Phase.WRITE:
            self._sent()

    # httptools calls these.

    def on_message_begin(self) -> None:
        self._url, self._headers, self._in_head = b"", {}, True
        if self._phase is _Phase.IDLE:
            self._wait_for(_Phase.HEAD)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        self._in_head, self._beside = False, 0
        if self._deaf or self._asks_for_upgrade():
            return
        target = httptools.parse_url(self._url)
        path, query = target.path.decode("ascii"), (target.query or b"").decode("latin-1")
        if "%" in path:
            path = unquote(path)
        head = Head(self._parser.get_method().decode(), path, query, self._headers)
        exchange = self._receiving = self._service.begin(head)
        if self._current is None:
            self._wait_for(_Phase.BODY)
        try:
            exchange.expect()
        except ApiError as error:
            self._answer_early(self._service.refuse(exchange, error))
            return
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self._current is None:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        self._beside -= len(body)
        if self._receiving is None or self._deaf:
            return
        try:
            self._receiving.take(body)
        except ApiError as error:
            self._answer_early(self._service.refuse(self._receiving, error))

    def on_message_complete(self) -> None:
        exchange, self._receiving, self._body = self._receiving, None, 0
        if exchange is None or self._deaf:
            return
        self._waiting.append((exchange, None))
        one_more = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
        if not one_more or len(self._waiting) >= _MOST_PIPELINED:
            self._deaf = True
        if self._current is None:
            self._answer_next()
        else:
            self._transport.pause_reading()

    # From here on requests are answered, one after the other.

    def _answer_early(self, response: Response) -> None:
        """Before the body is complete, which is not looked at any more."""
        assert self._receiving is not None  # noqa: S101 - its head is complete
        self._waiting.append((self._receiving, response))
        self._receiving, self._deaf, self._lingers = None, True, True
        if self._current is None:
            self._answer_next()

    def _answer_next(self) -> None:
        exchange, early = self._waiting.popleft()
        self._current = exchange
        answer = early or self._service.answer(exchange)
        if isinstance(answer, Response):
            self._send(exchange, answer)
        else:
            self._wait_for(_Phase.ANSWER)
            self._task = self._front.loop.create_task(self._send_later(exchange, answer))

    async def _send_later(self, exchange: Exchange, answer: Deferred) -> None:
        response = await self._service.wait(exchange, answer)
        self._task = None
        self._send(exchange, response)

    def _send(self, exchange: Exchange, response: Response) -> None:
        headers = self._service.headers(exchange, response)
        if headers.get("connection") == "close":
            self._deaf = True
            for dropped, _ in self._waiting:
                self._service.end(dropped, CLIENT_HAS_GONE)
            self._waiting.clear()
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if self._deaf and not self._waiting and "connection" not in headers:
            lines.append("connection: close\r\n")
        head = (
            f"{_STATUS[response.status]}{self._front.date}{''.join(lines)}"
            f"content-length: {len(response.body)}\r\n\r\n"
        )
        self._status = response.status
        self._transport.write(head.encode("latin-1") + response.body)
        if self._paused:
            self._untaken = self._transport.get_write_buffer_size()
            exchange.reservation.keep(self._untaken)
            self._wait_for(_Phase.WRITE)
        else:
            self._sent()

    def _sent(self) -> None:
        exchange, self._current = self._current, None
        if exchange is not None:
            self._service.end(exchange, self._status)
        if self._waiting:
            self._answer_next()
        elif self._deaf:
            self._close()
        else:
            if self._receiving is not None:
                self._wait_for(_Phase.BODY)
            else:
                self._wait_for(_Phase.HEAD if self._in_head else _Phase.IDLE)
            self._transport.resume_reading()

    # How it ends.

    def finish(self) -> None:
        """Close it, at once if nothing is on its way."""
        if self._current is None and self._receiving is None and not self._waiting:
            self._transport.close()

    def abort(self) -> None:
        """Close it whatever is on its way."""
        self._transport.abort()

    def expire(self) -> None:
        """It has waited for too long."""
        match self._phase:
            case _Phase.HEAD if self._in_head:
                self._refuse(b"408 Request Timeout")
            case _Phase.IDLE | _Phase.HEAD:  # clients would take a 408 for their next answer
                self._transport.close()
            case _Phase.BODY if self._receiving is not None:
                self._answer_early(self._service.late(self._receiving))
            case _Phase.WRITE if self._transport.get_write_buffer_size() < self._untaken:
                self._untaken = self._transport.get_write_buffer_size()
                self._wait_for(_Phase.WRITE)
            case _:
                self._transport.abort()

    def _wait_for(self, phase: _Phase) -> None:
        self._phase = phase
        self.deadline = self._front.loop.time() + self._front.seconds[phase]

    def _refuse(self, status: bytes) -> None:
        """Answer what is not a request."""
        if self._current is not None:
            self._transport.abort()
            return
        self._deaf, self._lingers = True, self._beside > 0
        self._transport.write(_REFUSAL % status)
        self._close()

    def _close(self) -> None:
        if not self._lingers:
            self._transport.close()
            return
        self._transport.resume_reading()
        self._transport.write_eof()
        self._wait_for(_Phase.LINGER)
