"""HTTP to one server: over connections that are kept, and for no longer than was agreed."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpcore
import msgspec

from mmroute.deadlines import DeadlineStream, left_until
from mmroute.errors import InexactError, Reason
from mmroute.remote.settings import Remote

__all__ = ["Reply", "Transport"]

_MAX_ANSWER: Final = 1 << 26  # bytes; a million token IDs have 8 million
_KEPT: Final = 60.0  # seconds; a server that closes its side sooner is noticed
_FAILURES: Final = (httpcore.NetworkError, httpcore.ProtocolError)
# Of a request that was sent on a new connection, or whose answer began.
_FINAL: Final = frozenset({
    "connection.connect_tcp.started", "connection.connect_unix_socket.started",
    "http11.receive_response_headers.complete",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered, whatever its status.

    Attributes:
        status: of the response.
        headers: their names in lower case.
        raw: the body.
    """

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever the server sent
        """The JSON value of the body; None if it is none."""
        try:
            return msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def error(self) -> Mapping[str, Any]:
        """The error in the body; empty if it has none of vLLM's shape."""
        body = self.body
        error = body.get("error") if isinstance(body, dict) else None
        return error if isinstance(error, dict) else {}

    @property
    def message(self) -> str:
        """What an error says. vLLM, its middleware and Starlette spell it in three ways."""
        body = self.body
        found = self.error.get("message")
        if found is None and isinstance(body, dict):
            found = body.get("error") or body.get("detail") or body.get("message")
        return str(found or "no message")


class Transport:
    """Asks one server. Safe to share between threads; a forked process connects anew.

    Args:
        remote: the server.

    Attributes:
        name: of the server, for messages.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._base = remote.base
        self.name: Final = remote.base if remote.socket_path is None else remote.url
        self._headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
        if remote.api_key is not None:
            self._headers.append(("Authorization", f"Bearer {remote.api_key}"))
        self._clock = _Clock()
        self._open()

    def ask(self, method: str, path: str, content: bytes | None = None) -> Reply:
        """The server's answer, whatever its status.

        A connection that was kept may be closed by the server in the moment it is used again.
        Then, and only then, the request is sent once more: whatever is asked here can be asked
        twice.

        Raises:
            InexactError: `remote_unavailable`: it cannot be reached, is late, or sends too much.
        """
        if self._process != os.getpid():
            # On a connection shared with its parent, one process would read the other's answers.
            self._open()
        self._clock.start(self._remote.timeout)
        try:
            events: set[str] = set()
            try:
                return self._exchange(method, path, content, events)
            except _FAILURES:
                if not events.isdisjoint(_FINAL):
                    raise
            return self._exchange(method, path, content, set())
        except httpcore.ConnectTimeout as error:
            limit = self._remote.connect_timeout
            raise self._failed(path, f"cannot be reached within {limit:g} s") from error
        except (httpcore.TimeoutException, TimeoutError) as error:
            limit = self._remote.timeout
            raise self._failed(path, f"did not answer within {limit:g} s") from error
        except _FAILURES as error:
            raise self._failed(path, f"cannot be reached: {error!r}") from error

    def close(self) -> None:
        """Close all connections. A later request opens new ones."""
        self._closer()
        self._open()

    def _exchange(self, method: str, path: str, content: bytes | None, events: set[str]) -> Reply:
        left = self._clock.left()
        timeouts = dict.fromkeys(("read", "write", "pool"), left)
        with self._pool.stream(
            method,
            f"{self._base}{path}",
            headers=self._headers,
            content=content,
            extensions={
                "timeout": {**timeouts, "connect": min(left, self._remote.connect_timeout)},
                "trace": lambda event, _: events.add(event),
            },
        ) as response:
            raw = bytearray()
            for chunk in response.iter_stream():
                raw += chunk
                if len(raw) > _MAX_ANSWER:
                    raise self._failed(path, f"answered with more than {_MAX_ANSWER} bytes")
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            }
            return Reply(response.status, headers, bytes(raw))

    def _open(self) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpcore.default_ssl_context() if self._base.startswith("https:") else None,
            max_connections=self._remote.max_connections,
            keepalive_expiry=_KEPT,
            uds=self._remote.socket_path,
            network_backend=_Backend(self._clock),
        )
        self._process = os.getpid()
        self._closer = weakref.finalize(self, _close, self._pool, self._process)
        self._closer.atexit = False  # the system closes them then

    def _failed(self, path: str, what: str) -> InexactError:
        return InexactError(Reason.REMOTE_UNAVAILABLE, f"{self.name}{path} {what}")


def _close(pool: httpcore.ConnectionPool, process: int) -> None:
    if process == os.getpid():  # another thread may have held its lock when this one was forked
        pool.close()


class _Clock(threading.local):
    """When the request of this thread has taken too long. httpcore asks in the caller's thread."""

    deadline = 0.0

    def start(self, seconds: float) -> None:
        """Begin a request."""
        self.deadline = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until then.

        Raises:
            TimeoutError: there are none.
        """
        return left_until(self.deadline)


class _Backend(httpcore.NetworkBackend):
    """Connections on which no request outlasts its deadline."""

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
