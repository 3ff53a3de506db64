"""The listening sockets of a server."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import port as port_number
from mmroute.server.options import option

_BACKLOG: Final = 2048
_PROBE_SECONDS: Final = 2.0
_SEND_BUFFER: Final = 1 << 18


_limit: Final = partial(option, group="limits")
_where: Final = partial(option, group="where it listens")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of all connections together, and of each one.

    Attributes:
        idle_seconds: the most seconds between two requests.
        head_bytes: the most bytes of one request's head.
    """

    connections: int = _limit(
        768, "connections at a time; more get a 503", flag="--max-connections"
    )
    head_seconds: float = _limit(
        10.0,
        "seconds for a head, from the connection or the first byte of a later request",
        flag="--head-timeout",
    )
    write_seconds: float = _limit(
        30.0, "seconds in which a client must read a part of an answer", flag="--write-timeout"
    )
    idle_seconds: float = 75.0
    head_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True)
class Listen:
    """The address at which a server listens, and the time that it takes to stop.

    While it drains, ``/health`` answers 503, and each answer closes its connection, so that clients
    go to other servers.
    """

    host: str = _where("127.0.0.1", "the address", metavar="HOST")
    port: int = _where(8000, "0: any", metavar="PORT", type=port_number)
    uds: str | None = _where(None, "a Unix socket, in place of host and port", metavar="PATH")
    reuse_port: bool = _where(
        False, "let other servers listen at the port too; the system shares connections out"
    )
    own_port: int | None = _where(
        None,
        "listen at this port too, for this server's own /metrics and /admin beside --reuse-port",
        metavar="PORT",
        type=port_number,
    )
    drain: float = _where(
        5.0, "the seconds from SIGTERM until listening ends", flag="--drain-seconds", metavar="S"
    )
    grace: float = _where(
        30.0,
        "the seconds that running requests may still take then",
        flag="--grace-seconds",
        metavar="S",
    )
    limits: ConnectionLimits = ConnectionLimits()

    def __post_init__(self) -> None:
        if self.uds is not None and (self.reuse_port or self.own_port is not None):
            raise ValueError("a Unix socket is of one server: give no reuse_port and own_port")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.uds or f"{host}:{self.port}"


def open_sockets(listen: Listen) -> list[socket.socket]:
    """Open listening sockets, one for each address of the host and each port."""
    where = str(listen)
    try:
        if listen.uds is not None:
            return [_unix(Path(listen.uds))]
        sockets = _internet(listen.host, listen.port, reuse_port=listen.reuse_port)
        if listen.own_port is not None:
            where = f"{listen.host}:{listen.own_port}"
            sockets += _internet(listen.host, listen.own_port)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(f"could not listen on {where}: {why}") from error
    for opened in sockets:
        # Of the connections, too. Otherwise the system buffers megabytes of an answer that nobody
        # reads, and reports them as sent.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    return sockets


def _internet(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    addresses = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    unusable: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(addresses):
        try:
            sockets.append(
                socket.create_server(
                    address, family=family, backlog=_BACKLOG, reuse_port=reuse_port
                )
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                for opened in sockets:
                    opened.close()
                raise
            unusable = error  # as where a host has a name for IPv6, and no IPv6
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


@contextlib.contextmanager
def socket_file(path: str | None) -> Iterator[None]:
    """Remove the file of a Unix socket in the end, unless another server has replaced it."""
    file = Path(path or "")
    made = file.stat()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path and os.path.samestat(file.stat(), made):
                file.unlink()
