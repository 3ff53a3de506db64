"""HTTP/1.1 connections, with limits for clients that are slow, silent or send without end.

A connection answers one request at a time; later ones wait. All deadlines are checked together,
four times a second, because a timer for each request would cost more than most of the other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from email.utils import formatdate
from enum import IntEnum
from http import HTTPStatus
from time import perf_counter
from typing import Final

from mmroute.server.exchange import CLIENT_HAS_GONE, Deferred, Exchange
from mmroute.server.front.http import Response
from mmroute.server.front.listening import ConnectionLimits, Share
from mmroute.server.front.request_parser import MalformedError, RequestParser
from mmroute.server.service import Service

_MOST_EXTRA: Final = 32
_PAGES: Final = frozenset({"GET", "HEAD"})
_READ: Final = 1 << 18  # bytes of one connection at a time
_TURN: Final = 0.001  # seconds after which a connection lets others have the event loop
_TICK: Final = 0.25
_LINGER: Final = 5.0
_PUBLISHED_EVERY: Final = 1.0
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINE: Final = "%s: %s\r\n".__mod__
_STATUS: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


class _Phase(IntEnum):
    """The event for which a connection waits."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWER = 3
    WRITE = 4
    """The client has not received all of the answer yet."""
    LINGER = 5
    """The client has not closed yet. If it still sends, a reset would destroy its answer."""


# Looking up a member of an enumeration takes longer than parsing a header.
_IDLE, _HEAD, _BODY, _ANSWER, _WRITE, _LINGERS = _Phase


class Front:
    """All connections of a service. Belongs to one event loop.

    Attributes:
        connections: the open connections.
        extra: the connections beyond the limit, the oldest one first.
        empty: an event that is set while there is no connection.
        date: the ``Date`` header of the responses.
        share: this process's share of all connections; None for a single process.
        buffer: the bytes that arrive on any connection, which copies them before the next read.
    """

    def __init__(self, service: Service, limits: ConnectionLimits) -> None:
        self.service = service
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.extra: dict[Connection, None] = {}
        self.share: Share | None = None
        self.seconds: Final = (  # for each phase
            limits.idle_seconds,
            limits.head_seconds,
            service.settings.request_timeout,
            math.inf,
            limits.write_seconds,
            _LINGER,
        )
        self.buffer: Final = bytearray(_READ)
        service.metrics.connections.set_function(lambda: len(self.connections))
        self.empty = asyncio.Event()
        self.empty.set()
        self._due = self._publish = self.loop.time()
        self._tick()

    def connection(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    async def close(self, grace: float) -> None:
        """Close each connection when its request is answered, and all of them after `grace` s."""
        self.service.drain.begun = True
        for connection in tuple(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.empty.wait(), grace)
        for connection in tuple(self.connections):
            connection.abort()
        self._ticking.cancel()
        await asyncio.sleep(0)  # let each connection learn that it is closed

    def add(self, connection: Connection) -> None:
        """Add a new connection. One beyond the limit may only get pages, as health probes do.

        The number of those is limited, too: the oldest of them is closed for a new one.
        """
        self.connections.add(connection)
        self.empty.clear()
        if len(self.connections) > self.limits.connections:
            self.extra[connection] = None
            if len(self.extra) > _MOST_EXTRA:
                next(iter(self.extra)).turn_away()

    def forget(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self.connections.discard(connection)
        self.extra.pop(connection, None)
        if self.share is not None:
            self.share.tell(len(self.connections))
        if not self.connections:
            self.empty.set()

    def _tick(self) -> None:
        now = self.loop.time()
        self.service.metrics.lag.observe(max(0.0, now - self._due))
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
    """A connection of a client.

    Attributes:
        deadline: the time at which its wait ends, by the clock of the event loop.
    """

    def __init__(self, front: Front) -> None:
        self.deadline = math.inf
        self._front = front
        self._service = front.service
        self._transport: asyncio.Transport
        self._parser = RequestParser(front.limits.head_bytes)
        self._phase = _HEAD
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._status = CLIENT_HAS_GONE  # of the answer that is being sent
        self._untaken = 0
        self._paused = False
        self._deaf = False  # whether further bytes are ignored
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # to learn when the last byte is sent
        self._wait_for(_HEAD)
        self._front.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.forget(self)
        self._deaf = True
        if self._task is not None:
            self._task.cancel()
        self._end(CLIENT_HAS_GONE)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._front.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._deaf:
            return
        self._parser.receive(self._front.buffer, nbytes)
        if self._phase < _ANSWER:
            self._advance()
        else:
            self._transport.pause_reading()
            self._parser.keep()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._phase is _WRITE:
            self._sent()
            self._advance()

    def _advance(self) -> None:
        """Process the received bytes, until more must arrive or other connections have a turn."""
        parser, turn_ends = self._parser, math.inf
        try:
            while self._phase < _ANSWER and not self._deaf:
                if not self._take() or not parser.unread:
                    break
                now = perf_counter()
                if now > turn_ends:
                    self._transport.pause_reading()
                    self._front.loop.call_soon(self._advance)
                    return
                turn_ends = min(turn_ends, now + _TURN)
        except MalformedError as error:
            self._lingers = True
            self._refuse(error.status)
        finally:
            parser.keep()
        if self._phase < _ANSWER and not self._deaf and not self._transport.is_reading():
            self._transport.resume_reading()

    def _take(self) -> bool:
        """Take what has arrived of a request, and answer it; False if more must arrive first."""
        parser, exchange = self._parser, self._exchange
        if exchange is None:
            head = parser.head()
            if head is None:
                if parser.unread and self._phase is _IDLE:
                    self._wait_for(_HEAD)
                return False
            if self in self._front.extra and head.method not in _PAGES:
                self.turn_away()
                return False
            exchange = self._exchange = self._service.begin(head)
        if not parser.complete:
            part = parser.body()
            refusal = self._service.take(exchange, part)
            if refusal is None and not parser.complete:
                refusal = self._wait_for_body(exchange)
            if refusal is not None:
                self._answer_early(exchange, refusal)
                return False
            if not parser.complete:
                return bool(part)
        self._answer(exchange)
        return True

    def _wait_for_body(self, exchange: Exchange) -> Response | None:
        """Wait for the rest of a body, and return the response if it will be too long."""
        if self._phase is _BODY:
            return None
        refusal = self._service.expect(exchange)
        if refusal is None:
            self._wait_for(_BODY)
            if self._parser.expects_continue:
                self._transport.write(_CONTINUE)
        return refusal

    # Answering.

    def _answer_early(self, exchange: Exchange, response: Response) -> None:
        """Answer before the body is complete, and ignore the rest of it."""
        self._deaf = self._lingers = True
        self._send(exchange, response)

    def _answer(self, exchange: Exchange) -> None:
        self._deaf = not self._parser.keep_alive or self in self._front.extra
        answer = self._service.answer(exchange)
        if isinstance(answer, Response):
            self._send(exchange, answer)
        else:
            self._wait_for(_ANSWER)
            self._task = self._front.loop.create_task(self._send_later(exchange, answer))

    async def _send_later(self, exchange: Exchange, answer: Deferred) -> None:
        response = await self._service.wait(exchange, answer)
        self._task = None
        self._send(exchange, response)
        self._advance()

    def _send(self, exchange: Exchange, response: Response) -> None:
        headers = self._service.headers(exchange, response)
        if self._deaf:
            headers["connection"] = "close"
        elif headers.get("connection") == "close":
            self._deaf = True
        head = (
            f"{_STATUS[response.status]}{self._front.date}{''.join(map(_LINE, headers.items()))}"
            f"content-length: {len(response.body)}\r\n\r\n"
        ).encode("latin-1")
        self._status = response.status
        self._transport.write(head if exchange.head.method == "HEAD" else head + response.body)
        if self._paused:
            self._untaken = self._transport.get_write_buffer_size()
            exchange.reservation.keep(self._untaken)
            self._wait_for(_WRITE)
        else:
            self._sent()

    def _sent(self) -> None:
        self._end(self._status)
        if self._deaf:
            self._close()
        else:
            self._wait_for(_IDLE)

    def _end(self, status: int) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._service.end(exchange, status)

    # Closing.

    def finish(self) -> None:
        """Close the connection if it has no request; otherwise its answer closes it."""
        if self._exchange is None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection, even in the middle of a request."""
        self._transport.abort()

    def turn_away(self) -> None:
        """Refuse the connection, because there are too many."""
        self._service.metrics.rejected("connections")
        self._front.extra.pop(self, None)
        if self._exchange is not None:
            self.abort()
            return
        self._lingers = self._parser.unread
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "retry-after: 1\r\n")

    def expire(self) -> None:
        """End a wait whose deadline has passed."""
        match self._phase:
            case _Phase.HEAD if self._parser.unread:
                self._lingers = True
                self._refuse(HTTPStatus.REQUEST_TIMEOUT)
            case _Phase.IDLE | _Phase.HEAD:  # a client would read a 408 as its next answer
                self._transport.close()
            case _Phase.BODY if self._exchange is not None:
                self._answer_early(self._exchange, self._service.late(self._exchange))
            case _Phase.WRITE if self._transport.get_write_buffer_size() < self._untaken:
                self._untaken = self._transport.get_write_buffer_size()
                self._wait_for(_Phase.WRITE)
            case _:
                self._transport.abort()

    def _wait_for(self, phase: _Phase) -> None:
        self._phase = phase
        self.deadline = self._front.loop.time() + self._front.seconds[phase]

    def _refuse(self, status: HTTPStatus, more: str = "") -> None:
        """Answer bytes that are no valid request, and close the connection."""
        self._deaf = True
        lines = f"{_STATUS[status]}{self._front.date}{more}connection: close\r\n"
        self._transport.write(f"{lines}content-length: 0\r\n\r\n".encode())
        self._end(status)
        self._close()

    def _close(self) -> None:
        if not self._lingers:
            self._transport.close()
            return
        self._transport.resume_reading()
        self._transport.write_eof()
        self._wait_for(_LINGERS)
