"""A client of a server in one process: a pair of sockets, without a listener."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Final

from mmroute.server.front.listening import ConnectionLimits, Listen
from mmroute.server.models import Models
from mmroute.server.run import Server
from mmroute.server.settings import AccessLog, ServerSettings

_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")
_QUIET: Final = 0.02  # seconds in which a server that has something to say would have said it
_TURNS: Final = 20  # of the event loop, which may be late


@dataclass(frozen=True, slots=True)
class Answer:
    """One response; that of a HEAD has no body."""

    status: int
    body: bytes = b""


class Line:
    """The client's end of a connection."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self.closed = False

    async def send(self, segments: Iterable[bytes]) -> None:
        """Send each as a segment of its own: the server has read it when the next one is sent."""
        for segment in segments:
            with contextlib.suppress(ConnectionError):  # it is told by what it answered
                await self._loop.sock_sendall(self._end, segment)
            for _ in range(3):
                await asyncio.sleep(0)

    async def ask(self, request: bytes) -> Answer:
        """Send a request whose body is complete, and take its one answer."""
        await self.send([request])
        while (answer := self._next(request.startswith(b"HEAD "))) is None:
            async with asyncio.timeout(30):
                more = await self._loop.sock_recv(self._end, 1 << 16)
            assert more, self._received
            self._received += more
        return answer

    async def answers(self, heads: Iterable[int] = (), wanted: int | None = None) -> list[Answer]:
        """All responses, until the server closes or has nothing more to say.

        Args:
            heads: which of them answer a HEAD.
            wanted: as many are waited for, however long they take.
        """
        found: list[Answer] = []
        while True:
            answer = self._next(len(found) in heads)
            if answer is not None:
                found.append(answer)
                continue
            try:
                more = await self._more(30 if wanted is not None and len(found) < wanted else 0)
            except TimeoutError:
                return found
            except ConnectionError:
                more = b""
            if not more:
                assert not self._received, self._received
                self.closed = True
                return found
            self._received += more

    async def _more(self, seconds: float) -> bytes:
        """What is received within these seconds, or within some turns of the event loop."""
        for _ in range(_TURNS):
            with contextlib.suppress(BlockingIOError):
                return self._end.recv(1 << 16)
            await asyncio.sleep(_QUIET / _TURNS)
        async with asyncio.timeout(seconds):
            return await self._loop.sock_recv(self._end, 1 << 16)

    def _next(self, is_head: bool) -> Answer | None:
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return None
        status = int(head[len(b"HTTP/1.1 ") :][:3])
        length = _LENGTH.search(head + b"\r\n")
        size = 0 if is_head or length is None else int(length[1])
        if len(rest) < size:
            return None
        self._received = rest[size:]
        return Answer(status, rest[:size])


@contextlib.asynccontextmanager
async def answering(
    models: Models, settings: ServerSettings | None = None, **limits: Any
) -> AsyncIterator[Server]:
    """A server that listens nowhere."""
    listen = Listen(limits=ConnectionLimits(**limits))
    server = Server(models, settings or ServerSettings(access_log=AccessLog.NONE), listen)
    yield server
    for connection in tuple(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)
    await asyncio.gather(*server.server_state.tasks, return_exceptions=True)
    await server.service.close()


@contextlib.asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Line]:
    """A new connection."""
    own, client = socket.socketpair()
    client.setblocking(False)
    await asyncio.get_running_loop().connect_accepted_socket(server.connection, own)
    with client:
        yield Line(client)
