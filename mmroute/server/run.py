"""A server as a process: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Sequence
from types import FrameType
from typing import Final

import uvicorn

from mmroute.fast_paths import FastPaths
from mmroute.server.app import create_app
from mmroute.server.connections import Connection
from mmroute.server.listening import Listen, Listener, SocketFile, open_sockets
from mmroute.server.logs import configure
from mmroute.server.middleware import Drain
from mmroute.server.models import Models, ModelSource
from mmroute.server.settings import ServerSettings

__all__ = ["serve"]

_LOG: Final = logging.getLogger(__name__)
_LAST_REQUESTS: Final = 0.5  # seconds for those of connections that were accepted last


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
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing depends on who asks
        timeout_keep_alive=listen.keep_alive,  # type: ignore[arg-type]  # seconds, whole or not
        timeout_graceful_shutdown=listen.grace,  # type: ignore[arg-type]  # likewise
    )
    try:
        sockets = open_sockets(listen)
    except OSError as error:
        return str(error)
    file = None if listen.uds is None else SocketFile(listen.uds)
    server = _DrainingServer(config, drain, listen, sockets, file)
    try:
        server.run()
    finally:
        models.close()
        for opened in sockets:
            opened.close()
        if file is not None:
            file.remove()
    return failures[0] if failures else None


class _DrainingServer(uvicorn.Server):
    """Goes on for a while after the signal to stop, so that no request is lost on its way.

    A connection that is closed while a client writes to it loses that request, and so does one
    that waits to be accepted when listening ends. So each answer closes its connection first, while
    the server goes on; then all that wait are accepted, listening ends, and those that were
    accepted last have a moment for their request. Only idle connections are left.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Drain,
        listen: Listen,
        sockets: list[socket.socket],
        file: SocketFile | None,
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._listen = listen
        self._sockets = sockets
        self._file = file
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server.startup`, which is left without sockets of its own."""
        await super().startup(sockets or [])
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(self._sockets, self._protocol)
        where = [_shown(opened) for opened in self._sockets]
        _LOG.info("listening", extra={"fields": {"addresses": where}})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_listening()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first SIGTERM begins to drain; any other signal stops at once, as uvicorn does.

        uvicorn raises its signals again in the end. Not this one: to have stopped is a success.
        """
        if sig != signal.SIGTERM or self._drain.begun or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._drain.begun = True
        self._loop.call_soon_threadsafe(self._loop.call_later, self._listen.drain, self._end)

    def _end(self) -> None:
        self._end_listening()
        asyncio.get_running_loop().call_later(_LAST_REQUESTS, self._stop)

    def _end_listening(self) -> None:
        if self._file is not None:
            self._file.remove()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _protocol(self) -> asyncio.Protocol:
        """As `uvicorn.Server.startup` makes it."""
        return Connection(self.config, self.server_state, self.lifespan.state, self._listen.limits)

    def _stop(self) -> None:
        self.should_exit = True


def _shown(listening: socket.socket) -> str:
    name = listening.getsockname()
    if isinstance(name, str):
        return name
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"
