"""The listening sockets of a server, and the accepting of connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_BACKLOG: Final = 2048
_PROBE_SECONDS: Final = 2.0
_SEND_BUFFER: Final = 1 << 18
_LEFT_TO_OTHERS: Final = 0.002  # seconds for which a connection is left to other processes
_OUT_OF_DESCRIPTORS: Final = 1.0  # seconds until the next attempt to accept


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of all connections together, and of each one.

    Attributes:
        connections: the most connections at a time; further ones get a 503.
        idle_seconds: the most seconds between two requests.
        head_seconds: the most seconds for the head of a request, from the opening of the connection
            or from the first byte of a later request.
        head_bytes: the most bytes of one request's head.
        write_seconds: the seconds within which a client must receive a part of its answer.
    """

    connections: int = 768
    idle_seconds: float = 75.0
    head_seconds: float = 10.0
    head_bytes: int = 64 << 10
    write_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Listen:
    """The address at which a server listens, and the time that it takes to stop.

    Attributes:
        host: the host name or address.
        port: the port; 0 for any free one.
        uds: the path of a Unix socket, which replaces host and port; None for none.
        drain: the seconds from the signal to stop until the server stops listening. Meanwhile
            ``/health`` answers 503, and each answer closes its connection, so that clients go to
            other servers.
        grace: the seconds that requests may still take after that.
        limits: the limits of connections.
        processes: the number of processes that answer.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    drain: float = 5.0
    grace: float = 30.0
    limits: ConnectionLimits = ConnectionLimits()
    processes: int = 1

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ValueError(f"processes must be positive, found {self.processes}")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.uds or f"{host}:{self.port}"


def open_sockets(listen: Listen) -> list[socket.socket]:
    """Open listening sockets, one for each address of the host."""
    try:
        sockets = [_unix(Path(listen.uds))] if listen.uds is not None else _internet(listen)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(f"could not listen on {listen}: {why}") from error
    for opened in sockets:
        opened.setblocking(False)
    return sockets


def _internet(listen: Listen) -> list[socket.socket]:
    addresses = socket.getaddrinfo(
        listen.host or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    unusable: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(addresses):
        try:
            sockets.append(socket.create_server(address, family=family, backlog=_BACKLOG))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                for opened in sockets:
                    opened.close()
                raise
            unusable = error
            fields = {"address": str(address[0]), "text": error.strerror}
            _LOG.warning("address not usable", extra={"fields": fields})
    if unusable is not None and not sockets:
        raise unusable
    return sockets


def _unix(path: Path) -> socket.socket:
    """Open a Unix socket. Every user who may enter its directory may connect.

    A socket that a dead server left behind is replaced. So is that of a server that drains. Such
    a server keeps the connections that it has.
    """
    if not path.parent.is_dir():
        raise OSError(f"there is no directory {path.parent}")
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode) or not _may_be_replaced(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    beside = path.with_name(f".{os.getpid()}")
    try:
        opened.bind(str(beside))
        beside.chmod(0o666)
        opened.listen(_BACKLOG)
        beside.replace(path)  # so that the path always has a socket
    except OSError:
        opened.close()
        beside.unlink(missing_ok=True)
        raise
    return opened


def _may_be_replaced(path: Path) -> bool:
    """Whether no server listens at the path, or one that is about to end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        if probe.connect_ex(str(path)) != 0:
            return True
        with contextlib.suppress(OSError):
            probe.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = probe.recv(_BACKLOG).lower()
            return answer.startswith(b"http/1.1 503 ") and b"\r\nconnection: close\r\n" in answer
    return False


class SocketFile:
    """The file of a Unix socket, which the server that made it removes.

    A server that is about to end and its successor may share a path. Each removes only its own
    file.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._made = self._identity()

    def remove(self) -> None:
        """Remove the file, unless another server has replaced it."""
        if self._made is not None and self._identity() == self._made:
            self._path.unlink(missing_ok=True)
        self._made = None

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


class Share:
    """The number of connections of each process, in memory that the processes share.

    Attributes:
        slot: the index of this process.
    """

    def __init__(self, counts: memoryview, slot: int) -> None:
        self._counts = counts
        self.slot = slot

    def tell(self, connections: int) -> None:
        """Set the number of connections of this process."""
        self._counts[self.slot] = connections

    def has_more(self, connections: int) -> bool:
        """Set the number of connections, and say whether another process has fewer."""
        self.tell(connections)
        return connections > min(self._counts)


class Listener:
    """Accepts connections at sockets, until it is closed.

    When an event loop's own server is closed, it drops connections that wait, or that it has just
    accepted. This one serves all of them.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        protocol: Callable[[], asyncio.BufferedProtocol],
        has_more: Callable[[int], bool] | None = None,
    ) -> None:
        self._sockets = tuple(sockets)
        self._protocol = protocol
        self._has_more = has_more
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        for listening in self._sockets:
            self._loop.add_reader(listening, self._look, listening)

    def close(self) -> None:
        """Accept all connections that wait, and stop listening."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            self._accept(listening)
            listening.close()

    def _look(self, listening: socket.socket) -> None:
        """Accept a connection that waits, or leave it to another process for a moment."""
        if self._has_more is None:
            self._accept(listening)
        elif self._has_more(len(self._tasks)):
            self._loop.remove_reader(listening)
            self._loop.call_later(_LEFT_TO_OTHERS, self._accept_again, listening)
        else:
            self._accept(listening, most=1)

    def _accept(self, listening: socket.socket, most: int = _BACKLOG) -> None:
        try:
            for _ in range(most):
                connection, _ = listening.accept()
                connection.setblocking(False)
                # Otherwise the system buffers megabytes of an answer that nobody reads, and reports
                # them as sent.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
                if connection.family != socket.AF_UNIX:
                    # Otherwise the end of each answer waits until the client acknowledges its head.
                    with contextlib.suppress(OSError):  # the client may have gone already
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                making = self._loop.connect_accepted_socket(self._protocol, connection)
                task = self._loop.create_task(making)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # too many open files; connections may wait
            _LOG.warning("cannot accept", extra={"fields": {"text": error.strerror}})
            self._loop.remove_reader(listening)
            self._loop.call_later(_OUT_OF_DESCRIPTORS, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._accept(listening, most=1)
            self._loop.add_reader(listening, self._look, listening)
