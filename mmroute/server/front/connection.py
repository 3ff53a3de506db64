"""uvicorn's HTTP/1.1 connection, with limits for clients that are slow, silent or send without end.

A head is limited in bytes and seconds, an answer must be read, and no byte behind a request is
looked at before that request is answered. So a connection is at one request at a time, and whoever
sees its bytes, such as a proxy, sees the same requests.

Source: RFC 9110 (HTTP semantics) and RFC 9112 (HTTP/1.1); sections are named where a rule is.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from mmroute.server.front.listening import ConnectionLimits

_MOST_EXTRA: Final = 32
_PAGES: Final = frozenset({b"GET", b"HEAD"})
_UNSENT: Final = 1 << 16  # bytes of an answer that need not be waited for
_LINGER: Final = 5.0  # seconds in which a refused client can read why
_MOST_FIELDS: Final = 256
_MOST_TRAILERS: Final = 4096  # bytes
_CHUNKED: Final = -1  # in place of a length
_BAD: Final = HTTPStatus.BAD_REQUEST
_END: Final = b"\r\n\r\n"
_HOST: Final = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]*")  # RFC 3986, 3.2.2, as characters
_UPGRADE: Final = re.compile(rb"(?i)\r\nupgrade:")
_VERSIONS: Final = frozenset({"1.0", "1.1"})


@dataclass(slots=True, eq=False)
class Door:
    """What all connections of a server share."""

    limits: ConnectionLimits
    turned_away: Callable[[], object]  # is called for each connection that is one too many
    # Those beyond the limit, the oldest one first. They may only get pages, as health probes do.
    extra: dict[Connection, None] = field(default_factory=dict)

    def connection(self, **of_uvicorn: Any) -> Connection:
        """The protocol of a new connection; uvicorn calls this."""
        return Connection(self, **of_uvicorn)


@dataclass(eq=False)
class _RefusedError(Exception):
    """A head, or the trailers of a body, are refused with this status."""

    status: HTTPStatus | None  # None: a request begins behind the chunks of one without an answer


class Connection(HttpToolsProtocol):
    """A connection of a client."""

    def __init__(self, door: Door, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self.deadline = math.inf  # of its wait, by the clock of the event loop
        self._door = door
        self._idle = False  # whether it waits for the first byte of a later request
        self._deaf = False  # whether further bytes are ignored
        self._held, self._at = b"", 0  # what was received, and how much of it is done with
        self._fed = 0  # bytes behind that which llhttp has read: of a head that has not ended
        self._left: int | None = None  # bytes of a body that were not read; None in a head
        self._complete = False  # whether all of a request was read; its answer was not given yet
        self._trailers = 0
        self._unsent = 0

    # The event loop calls these.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT, low=0)
        self._wait(self._door.limits.head_seconds)
        if len(self.connections) > self._door.limits.connections:
            extra = self._door.extra
            extra[self] = None
            if len(extra) > _MOST_EXTRA:  # the oldest makes room
                oldest = next(iter(extra))
                del extra[oldest]
                self._door.turned_away()
                oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._door.extra.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf or (self._complete and not self.cycle.keep_alive):
            return
        self._held, self._at = self._held[self._at :] + data, 0
        self._advance()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._wait(self._door.limits.write_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        limits = self._door.limits
        if self._left is not None:
            self.deadline = math.inf
        else:
            self._wait(limits.idle_seconds if self._idle else limits.head_seconds)

    # llhttp calls these, and so does uvicorn.

    def on_message_begin(self) -> None:
        if self._complete:
            raise _RefusedError(None)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._left is None:
            super().on_header(name, value)
            return
        self._trailers += len(name) + len(value)  # which are passed over (RFC 9112, 7.1.2)
        if self._trailers > _MOST_TRAILERS:
            raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        version, method = self.parser.get_http_version(), self.parser.get_method()
        if version not in _VERSIONS:
            raise _RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if method == b"CONNECT":
            raise _RefusedError(HTTPStatus.NOT_IMPLEMENTED)
        if self.parser.should_upgrade():  # `_read_head` gives the head again, without its wish
            return
        left = _length(self.headers, is_old=version == "1.0")
        if version == "1.0" or not left:
            self.expect_100_continue = False  # RFC 9110, section 10.1.1
        is_extra = self in self._door.extra
        if is_extra and method not in _PAGES:
            self._door.turned_away()
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE)
        self._left, self._trailers, self._idle, self.deadline = left, 0, False, math.inf
        super().on_headers_complete()
        if is_extra:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        if self._left is not None:  # or the head is given again
            self._complete = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.transport.is_closing() or not self._complete:  # or to a part of a request
            self.transport.close()
            self._wait(self._door.limits.write_seconds)  # for what is not sent yet
            return
        self._left, self._complete, self._idle = None, False, True
        if not self.flow.write_paused:
            self._wait(self._door.limits.idle_seconds)
        self.flow.resume_reading()
        if self._held:
            self.loop.call_soon(self._advance)

    def _advance(self) -> None:
        """Read what was received, up to the end of one request."""
        self._deaf |= self.transport.is_closing()
        try:
            while self._at < len(self._held) and not self._complete and not self._deaf:
                if self._left is not None:
                    self._read_body(self._left)
                elif not self._read_head():
                    break
        except httptools.HttpParserCallbackError as error:
            why = error.__context__
            status = why.status if isinstance(why, _RefusedError) else _BAD
            if status is None:
                self._deaf, self.cycle.keep_alive = True, False
            else:
                self._refuse(status)
        except httptools.HttpParserError:
            self._refuse(_BAD)
        if self._deaf or self._at >= len(self._held):
            self._held, self._at = b"", 0
        elif self._complete:
            self.flow.pause_reading()

    def _read_head(self) -> bool:
        """Read a head as far as it was received, and say whether it has ended."""
        data, at = self._held, self._at
        if not self._fed and data[at] in b"\r\n":  # RFC 9112, section 2.2
            at = self._at = len(data) - len(data[at:].lstrip(b"\r\n"))
            if at == len(data):
                return False
        end = data.find(_END, max(at, at + self._fed - len(_END) + 1))
        ended = end >= 0
        end = end + len(_END) if ended else len(data)
        if end - at > self._door.limits.head_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        if not ended and self._idle:
            self._idle = False
            self._wait(self._door.limits.head_seconds)
        begin, self._fed = at + self._fed, end - at
        try:
            self.parser.feed_data(data[begin:end])
        except httptools.HttpParserUpgrade:  # no other protocol is spoken (RFC 9110, section 7.8)
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(_UPGRADE.sub(b"\r\nx-upgrade:", data[at:end]))
            if self._left is not None:  # a proxy may take what follows for the other protocol
                self.cycle.keep_alive = False
        if ended:
            self._at, self._fed = end, 0
            if self._left is None:  # it goes on for llhttp: the preface of HTTP/2
                self._refuse(_BAD)
        return ended

    def _read_body(self, left: int) -> None:
        data = memoryview(self._held)[self._at :]
        part = data if left == _CHUNKED else data[:left]
        self._at += len(part)
        if left != _CHUNKED:
            self._left = left - len(part)
        self.parser.feed_data(part)

    # Closing.

    def expire(self) -> None:
        """End a wait whose deadline has passed."""
        unsent = self.transport.get_write_buffer_size()
        if self.flow.write_paused and unsent < self._unsent:  # it reads, if slowly
            self._unsent = unsent
            self._wait(self._door.limits.write_seconds)
        elif self._fed and not self._deaf and not self.flow.write_paused:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:  # a client would read a 408 as its next answer
            self.transport.abort()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer what is no valid request, and read no more."""
        self._deaf = True
        self._door.extra.pop(self, None)
        self.flow.resume_reading()  # what is read is dropped
        self._wait(_LINGER)  # a reset while it still sends would destroy its answer
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # its body is malformed
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        retry = b"retry-after: 1\r\n" * (status is HTTPStatus.SERVICE_UNAVAILABLE)
        date = b"".join(b"%b: %b\r\n" % pair for pair in self.server_state.default_headers)
        end = b"connection: close\r\ncontent-length: 0\r\n\r\n"
        self.transport.write(b"".join((STATUS_LINE[status], date, retry, end)))
        self.transport.write_eof()

    def _wait(self, seconds: float) -> None:
        self.deadline = self.loop.time() + seconds


def _length(headers: list[tuple[bytes, bytes]], *, is_old: bool) -> int:
    """The length of the body behind a head, which is checked beyond what llhttp checks."""
    if len(headers) > _MOST_FIELDS:  # each takes many times its bytes
        raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    hosts, length = [], 0
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise _RefusedError(HTTPStatus.NOT_IMPLEMENTED)
            length = _CHUNKED
    if is_old and length == _CHUNKED:  # RFC 9112, section 6.1
        raise _RefusedError(_BAD)
    if is_old and not hosts:
        return length
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0].rstrip()):  # RFC 9112, section 3.2
        raise _RefusedError(_BAD)
    return length
