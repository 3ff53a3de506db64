"""HTTP to one server, over persistent connections, with a deadline for each request."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpcore
import msgspec

from mmroute.errors import InexactError, Reason
from mmroute.net.deadlines import DeadlineStream, left_until
from mmroute.net.remote import Remote


class FairSemaphore:
    """A limited number of places. A thread that is turned away at first gets the next free one.

    `threading.Semaphore` lets a thread that has just released a place take it again before a
    thread that waits for it wakes up: under load some threads then wait until their deadline.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take a place."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=timeout):
            return True
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        return True  # the place came between the end of the time and the lock

    def release(self) -> None:
        """Give a place to the thread that has waited longest, or leave it free."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


_MAX_RESPONSE: Final = 1 << 26  # bytes; a million token IDs take 8 million
_MAX_IDLE: Final = 60.0  # seconds; a server that closes its side sooner is noticed
_FAILURES: Final = (httpcore.NetworkError, httpcore.ProtocolError)


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's response, of any status. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The JSON value of the body; None if the body is not JSON."""
        try:
            return msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object in the body; empty if the body has no error in vLLM's form."""
        body = self.body
        error = body.get("error") if isinstance(body, dict) else None
        return error if isinstance(error, dict) else {}

    @property
    def message(self) -> str:
        """The message of an error, which vLLM, its middleware and Starlette put in three places."""
        body = self.body
        message = self.error.get("message")
        if message is None and isinstance(body, dict):
            message = body.get("error") or body.get("detail") or body.get("message")
        return str(message or "no message")


class Transport:
    """Sends requests to one server, from any thread; a forked process connects anew."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._base = remote.base
        # The server's name in messages.
        self.name: Final = remote.base if remote.socket_path is None else remote.url
        self._headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
        if remote.api_key is not None:
            self._headers.append(("Authorization", f"Bearer {remote.api_key}"))
        self._connections = _Connections(remote)

    def request(self, method: str, path: str, content: bytes | None = None) -> Reply:
        """Send a request, again if the server closed the connection, and return any response."""
        if self._connections.process != os.getpid():
            # On a connection shared with its parent, one process would read the other's responses.
            self._connections = _Connections(self._remote)
        connections = self._connections
        connections.clock.start(self._remote.timeout)
        try:
            with connections.place():
                connection = connections.kept()
                if connection is not None:
                    try:
                        return self._exchange(connection, method, path, content)
                    except _ClosedError:
                        pass
                return self._exchange(connections.new(), method, path, content)
        except httpcore.ConnectTimeout as error:
            limit = self._remote.connect_timeout
            raise self._failed(path, f"cannot be reached within {limit:g} s") from error
        except (httpcore.TimeoutException, TimeoutError) as error:
            limit = self._remote.timeout
            raise self._failed(path, f"did not answer within {limit:g} s") from error
        except (*_FAILURES, _ClosedError) as error:
            raise self._failed(path, f"cannot be reached: {error.__cause__ or error!r}") from error

    def close(self) -> None:
        """Close the idle connections. A later request opens new ones."""
        self._connections.close()

    def _exchange(
        self, connection: httpcore.HTTPConnection, method: str, path: str, content: bytes | None
    ) -> Reply:
        is_answered = False
        # The one timeout that httpcore watches itself; the deadline takes care of the others.
        connect = min(self._connections.clock.left(), self._remote.connect_timeout)
        try:
            with connection.stream(
                method,
                f"{self._base}{path}",
                headers=self._headers,
                content=content,
                extensions={"timeout": {"connect": connect}},
            ) as response:
                is_answered = True
                headers = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in response.headers
                }
                reply = Reply(response.status, headers, self._content(path, response))
        except BaseException as error:
            connection.close()
            if isinstance(error, _FAILURES) and not is_answered:
                raise _ClosedError from error
            raise
        self._connections.keep(connection)
        return reply

    def _content(self, path: str, response: httpcore.Response) -> bytes:
        content = bytearray()
        for chunk in response.iter_stream():
            content += chunk
            if len(content) > _MAX_RESPONSE:
                raise self._failed(path, f"answered with more than {_MAX_RESPONSE} bytes")
        return bytes(content)

    def _failed(self, path: str, what: str) -> InexactError:
        return InexactError(Reason.REMOTE_UNAVAILABLE, f"{self.name}{path} {what}")


class _ClosedError(Exception):
    """A connection failed before a response began."""


class _Connections:
    """Connections of one process to one server, each used by one thread at a time.

    httpcore's own pool inspects a connection in one thread while another thread begins to use it.
    If a response comes just then, the pool closes that connection (1.0.9, `has_expired`).
    """

    def __init__(self, remote: Remote) -> None:
        self.process: Final = os.getpid()
        self.clock: Final = _Clock()
        self._places = FairSemaphore(remote.max_connections)
        self._waiting: deque[httpcore.HTTPConnection] = deque()
        # Makes a connection, which opens at its first use.
        self.new: Final = functools.partial(
            httpcore.HTTPConnection,
            httpcore.URL(remote.base).origin,
            ssl_context=httpcore.default_ssl_context() if remote.base[:6] == "https:" else None,
            keepalive_expiry=_MAX_IDLE,
            uds=remote.socket_path,
            network_backend=_Backend(self.clock),
        )
        weakref.finalize(self, _close, self._waiting).atexit = False  # the system closes them

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Wait until another connection is allowed."""
        if not self._places.acquire(self.clock.left()):
            raise TimeoutError
        try:
            yield
        finally:
            self._places.release()

    def kept(self) -> httpcore.HTTPConnection | None:
        """The open connection that was used last; None if there is none."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._waiting.pop()
                if not connection.has_expired():
                    return connection
                connection.close()
        return None

    def keep(self, connection: httpcore.HTTPConnection) -> None:
        """Return a connection for later requests, if the server leaves it open."""
        if connection.is_idle():
            self._waiting.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        _close(self._waiting)


def _close(connections: deque[httpcore.HTTPConnection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()


class _Clock(threading.local):
    """The deadline of this thread's request; httpcore works in the caller's thread."""

    deadline = 0.0

    def start(self, seconds: float) -> None:
        """Begin a request that may take so many seconds."""
        self.deadline = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds until the deadline."""
        return left_until(self.deadline)


class _Backend(httpcore.NetworkBackend):
    """Opens connections on which every request ends by its deadline."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return DeadlineStream(stream, self._clock.left)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._backend.connect_unix_socket(path, timeout, socket_options)
        return DeadlineStream(stream, self._clock.left)
