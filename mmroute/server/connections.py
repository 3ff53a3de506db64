"""One connection of a client that may be slow, silent or endless: what each may take.

uvicorn's own protocol waits for a head as long as it takes, keeps one of any length, and closes a
connection under a client that still sends, which then loses the answer to a reset.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mmroute.server.listening import ConnectionLimits

__all__ = ["Connection"]

_REFUSAL: Final = b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LINGER: Final = 5.0
_UNTAKEN: Final = 4096  # bytes that a client may leave where they are
# Sizes of chunks are no body; a byte of body has at most so many of them.
_CHUNKING: Final = 8


class Connection(HttpToolsProtocol):
    """A connection within its limits.

    Args:
        config: of uvicorn.
        server_state: of uvicorn; it knows all connections.
        app_state: of the application.
        limits: for each connection.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._limits = limits
        self._in_head = True
        self._head = self._body = 0  # bytes of the request that is being received
        self._waiting: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._lingering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        transport.set_write_buffer_limits(high=_UNTAKEN)
        super().connection_made(_LingeringTransport(transport, self))  # type: ignore[arg-type]  # delegates
        if len(self.connections) > self._limits.connections:
            self._refuse(b"503 Service Unavailable\r\nRetry-After: 1")
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waiting, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            return
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._waiting is None:
            self._wait_for_head()
        allowed = self._limits.head_bytes + (0 if self._in_head else _CHUNKING * self._body)
        if self._head > allowed and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._body = True, 0

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        self._head -= len(body)
        super().on_body(body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self._limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    @property
    def is_receiving(self) -> bool:
        """Whether the client has not sent all of its request."""
        if self._in_head:
            return self._head > 0
        return self.cycle is not None and self.cycle.more_body

    def linger(self) -> None:
        """Read no more, but let the client read: it is reset at once otherwise."""
        self._lingering = True
        self.flow.resume_reading()
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(_LINGER, self.transport.abort)

    def _wait_for_head(self) -> None:
        self._waiting = self.loop.call_later(self._limits.head_seconds, self._without_head)

    def _without_head(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(_REFUSAL % status)
        self.transport.close()


class _LingeringTransport:
    """A transport that is closed only when its client has had a chance to read."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection
        self._closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        if self._connection.is_receiving and self._transport.can_write_eof():
            self._transport.write_eof()
            self._connection.linger()
        else:
            self._transport.close()
