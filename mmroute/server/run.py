"""Runs a server as a process, with its sockets and signals."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import importlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.api_errors import ApiError
from mmroute.server.front.connections import Front
from mmroute.server.front.listening import Listen, Listener, SocketFile, open_sockets
from mmroute.server.front.stopping import EndLimit
from mmroute.server.loading import ModelSource
from mmroute.server.models import Change, Models, NameTakenError
from mmroute.server.service import Service
from mmroute.server.settings import ServerSettings
from mmroute.server.shared_models import SharedModels
from mmroute.server.supervisor import RETIRE, Member, heard, supervise

_LOG: Final = logging.getLogger(__name__)
_INTERRUPTED: Final = 130  # the exit status of every command after SIGINT
_LAST_REQUESTS: Final = 0.5  # seconds for the requests of connections that were accepted last
_LAST_THREADS: Final = 0.1  # seconds for an idle thread to end
# The number of new objects after which Python collects garbage. With the default, 700, parsing a
# long body takes eight times as long, because the collector walks its objects again and again.
_OBJECTS: Final = 10_000
# The numbers of such collections after which it walks older objects as well, and then all of them.
# Beside a body with 100,000 messages the walk of all stops other requests for 0.2 s. With Python's
# default, 10, each such body has one.
_OLDER: Final = (10, 100)


def serve(
    sources: Sequence[ModelSource],
    settings: ServerSettings,
    listen: Listen,
    fast_paths: FastPaths | None = None,
) -> str | None:
    """Serve until a signal to stop. The socket is open before the models are loaded.

    The caller configures the logs.

    If a thread is still at work in the end, this ends the process.
    """
    models = Models(sources, links=settings.links, fast_paths=fast_paths)
    server = Server(models, settings, listen)
    try:
        sockets = open_sockets(listen)
    except OSError as error:
        return str(error)
    file = None if listen.uds is None else SocketFile(listen.uds)

    def serve_as(member: Member) -> int:
        one = Server(models, settings, listen, member)
        one.serve(sockets, file)
        return 1 if one.failure else 0

    interrupted = False
    try:
        # Models that are added later are loaded by a process that answers no request.
        if listen.processes > 1 or settings.admin_key is not None:
            failure = supervise(SharedModels(models), sockets, listen, serve_as)
        else:
            server.serve(sockets, file)
            failure, interrupted = server.failure, server.interrupted
    except KeyboardInterrupt:
        failure, interrupted = None, True
    finally:
        for opened in sockets:
            opened.close()
        if file is not None:
            file.remove()
    if _threads_at_work():
        logging.shutdown()
        os._exit(1 if failure else _INTERRUPTED if interrupted else 0)
    if interrupted and failure is None:
        raise KeyboardInterrupt
    return failure


def check(sources: Sequence[ModelSource], settings: ServerSettings) -> None:
    """Check the arguments of `serve` without loading a model."""
    Service(Models(sources, links=settings.links), settings)


def _threads_at_work() -> bool:
    """Whether a thread is still at work after all were asked to end."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(_LAST_THREADS)
    return any(thread.is_alive() for thread in others)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of uvloop, if it is installed, because it costs less for each request."""
    with contextlib.suppress(ModuleNotFoundError):
        factory: Callable[[], asyncio.AbstractEventLoop]
        factory = importlib.import_module("uvloop").new_event_loop
        return factory
    return None


class Server:
    """Serves requests in one process, and loses none when it stops.

    A request is lost if its connection is closed while the client writes, or if the connection
    waits to be accepted when listening ends. So after the signal to stop the server goes on for a
    while, and each answer closes its connection. Then it accepts all connections that wait, stops
    listening, and gives those a moment for their requests. Only idle connections are left.

    Attributes:
        failure: the error that ended the server; None if there was none.
        interrupted: whether SIGINT ended the server.
    """

    def __init__(
        self, models: Models, settings: ServerSettings, listen: Listen, member: Member | None = None
    ) -> None:
        self.failure: str | None = None
        self.interrupted = False
        self._member = member
        self._models = models
        self._listen = listen
        self._service = Service(models, settings, on_failure=self._fail)
        self._stopping = asyncio.Event()
        self._grace = listen.grace
        self._draining: asyncio.TimerHandle | None = None

    def serve(self, sockets: list[socket.socket], file: SocketFile | None) -> None:
        """Serve connections at open sockets until a signal to stop."""
        gc.set_threshold(_OBJECTS, *_OLDER)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            alone = self._member is None
            with self._signals(runner.get_loop()) if alone else contextlib.nullcontext():
                runner.run(self._run(sockets, file))

    async def _run(self, sockets: list[socket.socket], file: SocketFile | None) -> None:
        loop = asyncio.get_running_loop()
        front = Front(self._service, self._listen.limits)
        listener = Listener(sockets, front.connection, self._join(front))
        # A Unix socket gets its path after it was opened under another one.
        where = [self._listen.uds or _shown(opened) for opened in sockets]
        _LOG.info("listening", extra={"fields": {"addresses": where}})
        first = self._member is None or self._member.share.slot == 0
        await self._service.start(load=self._member is None, follow=first)
        if self._member is not None:
            self._member.tell(RETIRE)
            if self._models.ready:
                _LOG.info("ready")
        await self._stopping.wait()
        leaving = self._service.drain.leaving
        if file is not None and not leaving:
            file.remove()
        listener.close()
        if leaving:
            # Answers close their connections; idle ones end as they always do.
            self._stopping.clear()
            ends = [loop.create_task(event.wait()) for event in (front.empty, self._stopping)]
            seconds = self._listen.limits.idle_seconds
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._draining is not None:
            await asyncio.sleep(min(_LAST_REQUESTS, self._grace))
        await front.close(self._grace)
        self._models.close()
        await self._service.close()
        if not leaving:
            _LOG.info("stopped")

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Stop at a signal, and end in time even if the event loop hangs.

        Python calls the handler between two instructions of the code that hangs. The timer needs
        no lock of the interpreter. It writes where each thread is, and ends the process.
        """
        limit = EndLimit(self._listen)

        def handle(number: int, _: object) -> None:
            faulthandler.dump_traceback_later(limit.seconds_after(number), exit=True)
            loop.call_soon_threadsafe(self._stop, number)

        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, handle) for number in numbers]
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _join(self, front: Front) -> Callable[[int], bool] | None:
        """Connect to the other processes: changes of models, metrics, and shares of connections."""
        member = self._member
        if member is None:
            return None

        def hear() -> None:
            message = heard(member.control)
            if isinstance(message, Change):
                with contextlib.suppress(ApiError, NameTakenError):  # the first process refused it
                    self._models.apply(message)
            elif message == RETIRE:
                front.share = None
                self._service.drain.leaving = True
                self._stopping.set()
            elif isinstance(message, int):
                self._stop(message)
            else:
                loop.remove_reader(member.control)
                self._service.metrics.pages = None
                member.pages.remove()  # the first process has ended, and left them
                self._stopping.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(member.control, hear)
        member.beat()
        self._models.tell = member.tell
        self._service.metrics.pages = member.pages
        front.share = member.share
        return lambda waiting: member.share.has_more(len(front.connections) + waiting)

    def _stop(self, number: int) -> None:
        """Begin to drain at the first SIGTERM; at SIGINT or a second SIGTERM, stop listening."""
        if number == signal.SIGTERM and self._draining is None:
            self._service.drain.begun = True
            _LOG.info("draining", extra={"fields": {"seconds": self._listen.drain}})
            loop = asyncio.get_running_loop()
            self._draining = loop.call_later(self._listen.drain, self._stopping.set)
            return
        self.interrupted |= number == signal.SIGINT
        if self._stopping.is_set():
            self._grace = 0.0
        self._stopping.set()

    def _fail(self, message: str) -> None:
        self.failure = message
        self._stopping.set()


def _shown(listening: socket.socket) -> str:
    name = listening.getsockname()
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"
