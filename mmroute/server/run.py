"""Runs a server as a process, with its sockets and signals."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, cast

import uvicorn

from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.app import application
from mmroute.server.front.connection import Connection, Door
from mmroute.server.front.listening import Listen, open_sockets, socket_file
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models
from mmroute.server.service import Service
from mmroute.server.settings import ServerSettings

_LOG: Final = logging.getLogger(__name__)
_INTERRUPTED: Final = 130  # the exit status of every command after SIGINT
_TICK: Final = 0.1  # seconds; uvicorn calls `on_tick` so often
_LAST_REQUESTS: Final = 0.5  # seconds for the requests of connections that were accepted last
_LAST_WORDS: Final = 5.0  # seconds after the limit of the end, until the process is killed
_LAST_THREADS: Final = 0.1  # seconds for an idle thread to end
_MICROSECONDS: Final = 1e-6
# After so many new objects Python collects garbage, after so many collections of older ones, and of
# all. With its own numbers, 700 and 10, a long body is parsed in eight times the time, and one with
# 100,000 messages stops other requests for 0.2 s, because the collector walks it again and again.
_OBJECTS: Final = (10_000, 10, 100)


def serve(
    sources: Sequence[ModelSource],
    settings: ServerSettings,
    listen: Listen,
    fast_paths: FastPaths | None = None,
) -> str | None:
    """Serve until a signal to stop, and return the error that ended the server, if one did.

    The socket is open before the models are loaded. If a thread is still at work in the end, this
    ends the process.
    """
    server = Server(Models(sources, links=settings.links, fast_paths=fast_paths), settings, listen)
    try:
        sockets = open_sockets(listen)
    except OSError as error:
        return str(error)
    gc.set_threshold(*_OBJECTS)
    try:
        with socket_file(listen.uds):
            server.run(sockets)
    finally:
        faulthandler.cancel_dump_traceback_later()
    if _threads_at_work():
        logging.shutdown()
        os._exit(1 if server.failure else _INTERRUPTED if server.interrupted else 0)
    if server.interrupted and server.failure is None:
        raise KeyboardInterrupt
    return server.failure


def _threads_at_work() -> bool:
    """Whether a thread is still at work after all were asked to end."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(_LAST_THREADS)
    return any(thread.is_alive() for thread in others)


class Server(uvicorn.Server):
    """Serves requests in one process, and loses none when it stops.

    A request is lost if its connection is closed while the client writes, or if the connection
    waits to be accepted when listening ends. So after the signal to stop the server goes on for a
    while, and each answer closes its connection. Then it accepts all connections that wait, stops
    listening, and gives those a moment for their requests. Only idle connections are left.
    """

    def __init__(self, models: Models, settings: ServerSettings, listen: Listen) -> None:
        self.failure: str | None = None  # the error that ended the server
        self.interrupted = False  # whether SIGINT ended it
        self.service = Service(models, settings, on_failure=self._end)
        self._models = models
        self._listen = listen
        self._drains = False
        self._due = 0.0
        metrics = self.service.metrics
        self._door = Door(listen.limits, lambda: metrics.rejected("connections"))
        watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) * _MICROSECONDS
        super().__init__(
            uvicorn.Config(
                application(self.service),
                http=cast("Any", self._door.connection),
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                workers=1,
                proxy_headers=False,
                server_header=False,
                timeout_notify=int(watchdog / 2),
                callback_notify=_tell_watchdog if watchdog else None,
            )
        )
        metrics.connections.set_function(lambda: len(self.server_state.connections))

    def connection(self) -> Connection:
        """The protocol of a new connection."""
        of_server = {"server_state": self.server_state, "app_state": {}}
        return self._door.connection(config=self.config, **of_server)

    # uvicorn calls these.

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._due = time.monotonic()
        # A Unix socket gets its path after it was opened under another one.
        where = [self._listen.uds or _shown(opened) for opened in sockets or ()]
        _LOG.info("listening", extra={"fields": {"addresses": where}})

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        self.service.metrics.lag.observe(max(0.0, now - self._due))
        self._due = now + _TICK
        clock = asyncio.get_running_loop().time()
        for connection in tuple(self.server_state.connections):
            if isinstance(connection, Connection) and connection.deadline <= clock:
                connection.expire()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal, and end in time even if the event loop hangs.

        The timer needs no lock of the interpreter. It writes where each thread is, and ends all.
        """
        drains = sig == signal.SIGTERM and not self._drains and not self.should_exit
        seconds = (not self.should_exit) * self._listen.grace + drains * self._listen.drain
        faulthandler.dump_traceback_later(seconds + _LAST_WORDS, exit=True)
        asyncio.get_running_loop().call_soon_threadsafe(self._stop, sig)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._stop_listening(sockets or ())
        if self._drains:
            await asyncio.sleep(min(_LAST_REQUESTS, self._listen.grace))
        ends = time.monotonic() + self._listen.grace
        connections = self.server_state.connections
        self.service.draining = True  # so that answers close their connections
        for connection in tuple(connections):
            connection.shutdown()
        while connections and not self.force_exit and time.monotonic() < ends:
            await self.on_tick(0)
            await asyncio.sleep(_TICK)
        for connection in tuple(connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # let each connection learn that it is closed
        self._models.close()
        await self.lifespan.shutdown()
        _LOG.info("stopped")

    async def _stop_listening(self, sockets: Sequence[socket.socket]) -> None:
        """Accept all connections that wait, which a loop's own server drops, and stop listening."""
        still_open = [opened.dup() for opened in sockets]
        for server in self.servers:
            server.close()
        accepted = []
        for opened in still_open:
            opened.setblocking(False)
            with opened, contextlib.suppress(OSError):  # none waits any more
                while True:
                    accepted.append(opened.accept()[0])
        loop = asyncio.get_running_loop()
        for connection in accepted:  # not before: meanwhile others would come, without an end
            await loop.connect_accepted_socket(self.connection, connection)

    def _stop(self, number: int) -> None:
        """Begin to drain at the first SIGTERM; at SIGINT or a second SIGTERM, stop listening."""
        if number == signal.SIGTERM and not self._drains and not self.should_exit:
            self._drains = self.service.draining = True
            _LOG.info("draining", extra={"fields": {"seconds": self._listen.drain}})
            asyncio.get_running_loop().call_later(self._listen.drain, self._end)
            return
        self.interrupted |= number == signal.SIGINT
        self.force_exit = self.should_exit  # a signal while it stops ends all at once
        self.should_exit = True

    def _end(self, failure: str | None = None) -> None:
        self.failure = self.failure or failure
        self.should_exit = True


async def _tell_watchdog() -> None:
    """Tell systemd that the event loop turns (sd_notify(3)); a service that hangs is restarted."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    with (
        contextlib.suppress(OSError),  # the next turn tells it
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier,
    ):
        notifier.sendto(b"WATCHDOG=1", address.replace("@", "\0", 1))


def _shown(listening: socket.socket) -> str:
    name = listening.getsockname()
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"
