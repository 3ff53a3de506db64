"""Several processes behind one port or socket: loaded once, forked, and started again.

The first process loads the models and answers nothing. The others share its memory. All of them
accept from the same sockets; one that has more connections than another leaves the next one to it.
When a model is loaded, the first ones and those that come later, new processes take the places of
those that answer, which never stand still for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import mmap
import os
import pickle
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NoReturn

from mmroute.engines.vllm.api import ApiError
from mmroute.server.changes import Change
from mmroute.server.front.listening import Listen, Share
from mmroute.server.front.merged_metrics import SharedPages, shared_directory
from mmroute.server.front.signals import EndLimit
from mmroute.server.models import Entry, Models, NameTakenError, reclaim

RETIRE: Final = 0
"""Told to the first process by one that takes another one's place, and then to that other one."""

_LOG: Final = logging.getLogger(__name__)
_LIVED_SHORTLY: Final = 1.0  # seconds; it is not started again sooner
_LONGEST_MESSAGE: Final = 1 << 16
_LOOKED_AT_EVERY: Final = 1.0  # seconds
# So many looks at a process that has not turned its event loop since the first of them: it hangs.
# Looks are counted, and not seconds: a machine that stood still stood still for both.
_MOST_LOOKS: Final = 30
_BEATS: Final = 1 << 32
_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class Member:
    """What a process that answers shares with the first one and with the others.

    Attributes:
        control: tells the first process of changes, and hears of those of others; closed when the
            first process ends.
        share: its share of the connections.
        pages: the pages with the metrics of all processes.
        beats: the number of turns of its event loop, for the first process to see.
    """

    control: socket.socket
    share: Share
    pages: SharedPages
    beats: memoryview

    def beat(self) -> None:
        """Show that this process does not hang; once a second."""
        self.beats[0] = (self.beats[0] + 1) % _BEATS
        asyncio.get_running_loop().call_later(_LOOKED_AT_EVERY / 2, self.beat)

    def tell(self, told: Change | int) -> None:
        """Let the others make the same change of models; or `RETIRE`."""
        self.control.send(pickle.dumps(told))


def heard(control: socket.socket) -> Change | int | None:
    """A change of models, a signal to stop, or `RETIRE`; None if the other process has ended."""
    message = b""
    with contextlib.suppress(ConnectionResetError):  # it had messages that it did not read
        message = control.recv(_LONGEST_MESSAGE)
    told: Change | int | None = pickle.loads(message) if message else None  # noqa: S301 - of a fork of this program
    return told


def supervise(
    models: Models,
    sockets: list[socket.socket],
    listen: Listen,
    serve: Callable[[Member], int],
) -> str | None:
    """Keep as many processes until a signal says to stop; load the models beside them.

    Args:
        models: the models to serve.
        sockets: the sockets that listen.
        listen: says how many processes there are, and how long they may take to end.
        serve: what each of them does; gives its exit status.

    Returns:
        Why it could not serve; None if it was told to stop.

    Raises:
        KeyboardInterrupt: SIGINT told it to stop, and it has stopped.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads do not survive a fork
    with shared_directory() as directory:
        return _Supervisor(models, sockets, listen, serve, directory).run()


@dataclass(slots=True)
class _Child:
    """A process that answers.

    Attributes:
        slot: the number of the process.
        control: the socket by which it and the first process talk.
        beats: the turns of its event loop, as `Member.beats`.
        since: when it began, by the monotonic clock.
        last: the beats at the last look.
        silent: the number of looks in a row that found no other.
    """

    slot: int
    control: socket.socket
    beats: memoryview
    since: float
    last: int = 0
    silent: int = 0

    def hangs(self) -> bool:
        """Look at it once more: whether it has not moved for too long."""
        self.silent = self.silent + 1 if self.beats[0] == self.last else 0
        self.last = self.beats[0]
        return self.silent >= _MOST_LOOKS


class _Supervisor:
    def __init__(
        self,
        models: Models,
        sockets: list[socket.socket],
        listen: Listen,
        serve: Callable[[Member], int],
        directory: Path,
    ) -> None:
        self._models = models
        self._sockets = sockets
        self._serve = serve
        self._pages = SharedPages(directory)
        self._connections = _shared_numbers(listen.processes)
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._in_place: dict[int, int] = {}  # by slot: those that have no successor
        self._retired: set[int] = set()
        self._waiting: list[Change] = []
        self._loading: list[Entry] = []
        self._without_models: set[int] | None = None  # known when the first models are loaded
        self._woken, self._wakes = socket.socketpair()
        self._limit = EndLimit(listen)
        self._ends = math.inf  # when what is left of the processes is killed
        self._look = time.monotonic() + _LOOKED_AT_EVERY
        self._interrupted = False
        self._failure: str | None = None

    def run(self) -> str | None:
        """Until all have ended."""
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno())
        self._selector.register(self._woken, selectors.EVENT_READ)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._fill()  # they say that the models are being loaded
        self._wait_for(self._models.load())
        while self._children:
            for key, _ in self._selector.select(max(0.0, self._look - time.monotonic())):
                if key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(_LONGEST_MESSAGE)
                else:
                    self._relay(key.data)
            self._kill_hanging()
            self._bury()
            self._settle()
            self._fill()
            self._make_changes()
        signal.set_wakeup_fd(-1)
        if self._interrupted and self._failure is None:
            raise KeyboardInterrupt
        return self._failure

    def _fill(self) -> None:
        """Start the processes that are missing, unless a model is being loaded.

        A thread loads it, and threads do not survive a fork.
        """
        missing = set(range(len(self._connections))) - self._in_place.keys()
        if self._loading or self._limit.stopping or not missing:
            return
        self._models.close(wait=True)
        self._models.renew()
        gc.unfreeze()
        reclaim()
        gc.freeze()  # or looking for garbage would copy the memory that is shared
        for slot in sorted(missing):
            self._fork(slot)

    def _fork(self, slot: int) -> None:
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connections[slot] = 0
        beats = _shared_numbers(1)
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        pid = os.fork()
        if pid == 0:
            # A service manager may signal all processes; the first one says what that means.
            signal.set_wakeup_fd(-1)
            for number in signals[:2]:
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            self._answer(own, Member(other, Share(self._connections, slot), self._pages, beats))
        other.close()
        self._children[pid] = _Child(slot, own, beats, time.monotonic())
        self._in_place[slot] = pid
        self._selector.register(own, selectors.EVENT_READ, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def _answer(self, own: socket.socket, member: Member) -> NoReturn:
        status = _FAILED
        try:
            others = [child.control for child in self._children.values()]
            for opened in (own, self._woken, self._wakes, *others):
                opened.close()
            self._selector.close()
            self._models.renew()
            self._models.loads = False
            status = self._serve(member)
        except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
            _LOG.exception("failed")
        finally:
            logging.shutdown()
            os._exit(status)

    def _relay(self, pid: int) -> None:
        told = heard(self._children[pid].control)
        if told is None:
            self._selector.unregister(self._children[pid].control)  # it is about to be buried
        elif isinstance(told, int):
            self._retire_before(pid)
        else:
            if told.kind == "replace":  # one that waits to be replaced is not loaded for nothing
                self._waiting = [
                    c for c in self._waiting if (c.kind, c.name) != (told.kind, told.name)
                ]
            self._waiting.append(told)

    def _retire_before(self, pid: int) -> None:
        """Those before it in its slot: until it listens, they answer what arrives.

        Those without any model leave all that arrives to the first one that has them.
        """
        slot, without_models = self._children[pid].slot, self._without_models or ()
        for earlier in takewhile(lambda other: other != pid, tuple(self._children)):
            replaced = self._children[earlier].slot == slot or earlier in without_models
            if replaced and earlier not in self._retired:
                self._retired.add(earlier)
                self._tell(RETIRE, [earlier])

    def _make_changes(self) -> None:
        """One after the other: the next one when the model of the one before is loaded."""
        while self._waiting and not self._loading:
            change, before = self._waiting.pop(0), self._models.entries()
            try:
                entry = self._models.apply(change)
            except (ApiError, NameTakenError):  # another change was faster
                continue
            self._tell(change, self._children)
            new = entry.replacement if change.kind == "replace" else entry
            if change.source is not None and new is not None and new not in before:
                self._wait_for([new])

    def _wait_for(self, entries: Iterable[Entry]) -> None:
        self._loading = [*entries]
        for entry in self._loading:
            entry.loading.add_done_callback(lambda _: self._wakes.send(b"\0"))

    def _settle(self) -> None:
        """What has been loaded is had by all processes that start from now on."""
        if not self._loading or not all(entry.loading.done() for entry in self._loading):
            return
        entries, self._loading = self._loading, []
        self._models.close(wait=True)  # what else a thread does with them
        self._models.renew()
        failed = next((entry for entry in entries if entry.error), None)
        if failed is None:
            if self._without_models is None:
                self._without_models = set(self._children)
            self._in_place.clear()
        elif self._without_models is not None:
            self._tell(Change("failed", failed.error, failed.source), self._children)
        else:
            self._failure = failed.error
            self._stop(signal.SIGINT)

    def _tell(self, told: Change | int, pids: Iterable[int]) -> None:
        message = pickle.dumps(told)
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended
                self._children[pid].control.send(message)

    def _kill_hanging(self) -> None:
        """Kill what does not turn its event loop, and what does not end in time."""
        now = time.monotonic()
        if now < self._look:
            return
        self._look = now + _LOOKED_AT_EVERY
        for pid, child in self._children.items():
            if child.hangs() or now >= self._ends:
                _LOG.error("process hangs", extra={"fields": {"pid": pid}})
                os.kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        """Look at what has ended; stop, if one says that it cannot serve."""
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid)
            self._retired.discard(pid)
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.control)
            child.control.close()
            self._pages.end(pid)
            if self._in_place.get(child.slot) != pid:  # it was retired
                continue
            del self._in_place[child.slot]
            if self._limit.stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            _LOG.error("process ended", extra={"fields": {"pid": pid, "status": code}})
            if code == _FAILED:
                self._failure = "a process cannot serve; the log says why"
                self._stop(signal.SIGINT)
            elif time.monotonic() - child.since < _LIVED_SHORTLY:
                time.sleep(_LIVED_SHORTLY)

    def _stop(self, number: int, *_: Any) -> None:
        self._ends = min(self._ends, time.monotonic() + self._limit.seconds_after(number))
        self._interrupted |= number == signal.SIGINT
        for opened in self._sockets:
            opened.close()
        self._tell(int(number), self._children)


def _shared_numbers(count: int) -> memoryview:
    """So many zeros, which processes that are forked share."""
    return memoryview(mmap.mmap(-1, 4 * count)).cast("I")
