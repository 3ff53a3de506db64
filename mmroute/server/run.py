"""A server as a process: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

import uvicorn

from mmroute.fast_paths import FastPaths
from mmroute.server.app import create_app
from mmroute.server.logs import configure
from mmroute.server.middleware import Drain
from mmroute.server.models import Models, ModelSource
from mmroute.server.settings import ServerSettings

__all__ = ["Listen", "serve"]

_BACKLOG: Final = 2048
_LAST_ACCEPTED: Final = 0.05  # seconds for what the loop has accepted
_LAST_REQUESTS: Final = 0.5  # seconds for those of connections that were accepted last


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a server listens, and how it stops.

    Attributes:
        host: name or address.
        port: of it; 0 for any free one.
        uds: path of a Unix socket, instead of both.
        keep_alive: seconds an idle connection is kept.
        drain: seconds between the signal to stop and the end of listening: ``/health`` says 503
            and answers close their connections, so that clients go elsewhere.
        grace: seconds that requests may still take after that.
        log_level: of the log lines on standard error.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    keep_alive: float = 75.0
    drain: float = 1.0
    grace: float = 30.0
    log_level: str = "info"


def serve(
    sources: Sequence[ModelSource],
    settings: ServerSettings,
    listen: Listen,
    fast_paths: FastPaths | None = None,
) -> str | None:
    """Serve until a signal says to stop. The socket is open before the models are loaded.

    Returns:
        Why it could not serve; None if it was told to stop.

    Raises:
        ValueError: as `Models` and `create_app`.
    """
    configure(listen.log_level)
    models, drain = Models(sources, links=settings.links, fast_paths=fast_paths), Drain()
    failures: list[str] = []
    server: _DrainingServer

    def fail(message: str) -> None:
        failures.append(message)
        server.should_exit = True

    app = create_app(models, settings, drain=drain, on_failure=fail)
    config = uvicorn.Config(
        app,
        host=listen.host,
        port=listen.port,
        uds=listen.uds,
        loop="asyncio",  # how listening ends was tried with this one
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=listen.keep_alive,  # type: ignore[arg-type]  # seconds, whole or not
        timeout_graceful_shutdown=listen.grace,  # type: ignore[arg-type]  # likewise
    )
    server = _DrainingServer(config, drain, listen.drain)
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it could not start; the log has the cause
        failures.append("the server could not listen")
    return failures[0] if failures else None


class _DrainingServer(uvicorn.Server):
    """Goes on for a while after the signal to stop, so that no request is lost on its way.

    A connection that is closed while a client writes to it loses that request, and so does one
    that waits to be accepted when listening ends. So each answer closes its connection first, while
    the server goes on; then all that wait are accepted, listening ends, and those that were
    accepted last have a moment for their request. Only idle connections are left.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain, seconds: float) -> None:
        super().__init__(config)
        self._drain = drain
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._accepting: set[asyncio.Task[object]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server.startup`."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first SIGTERM begins to drain; any other signal stops at once, as uvicorn does.

        uvicorn raises its signals again in the end. Not this one: to have stopped is a success.
        """
        if sig != signal.SIGTERM or self._drain.begun or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._drain.begun = True
        self._loop.call_soon_threadsafe(self._loop.call_later, self._seconds, self._end_listening)

    def _end_listening(self) -> None:
        """Let the loop accept no more.

        What it has accepted must be a connection before listening ends: asyncio drops it otherwise
        (`Server._attach`).
        """
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        loop.call_later(_LAST_ACCEPTED, self._close_listeners)

    def _close_listeners(self) -> None:
        for server in self.servers:
            for listening in server.sockets:
                self._accept_waiting(listening.fileno(), listening.family)
            server.close()
        asyncio.get_running_loop().call_later(_LAST_REQUESTS, self._stop)

    def _accept_waiting(self, fileno: int, family: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.fromfd(fileno, family, socket.SOCK_STREAM) as listening:
            listening.setblocking(False)
            with contextlib.suppress(OSError):  # until there is none
                while True:
                    connection, _ = listening.accept()
                    connection.setblocking(False)
                    accepted = loop.connect_accepted_socket(self._protocol, connection)
                    task = loop.create_task(accepted)
                    self._accepting.add(task)
                    task.add_done_callback(self._accepting.discard)

    def _protocol(self) -> asyncio.Protocol:
        """As `uvicorn.Server.startup` makes it."""
        return self.config.http_protocol_class(
            config=self.config,  # type: ignore[call-arg]  # of uvicorn's own protocols
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    def _stop(self) -> None:
        self.should_exit = True
