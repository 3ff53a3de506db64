"""Several processes behind one port or socket, which share their models.

The first process loads the models and answers no request. It forks the others, which share its
memory, and forks a new one if one dies. All of them accept connections from the same sockets; a
process that has more connections than another leaves the next one to the other. Whenever a model
was loaded, new processes replace the old ones, which answer until then.
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

from mmroute.server.front.listening import Listen, Share
from mmroute.server.front.merged_metrics import SharedPages, shared_directory
from mmroute.server.front.stopping import EndLimit
from mmroute.server.models import Change
from mmroute.server.shared_models import CannotServeError, SharedModels

RETIRE: Final = 0
"""A message: a new process sends it to the first one, which sends it to the process it replaces."""

_LOG: Final = logging.getLogger(__name__)
_LIVED_SHORTLY: Final = 1.0  # seconds; a process that died sooner is started again after a pause
_LONGEST_MESSAGE: Final = 1 << 16
_LOOKED_AT_EVERY: Final = 1.0  # seconds
# A process hangs if its event loop has not turned between so many looks. Looks are counted and not
# seconds, because a suspended machine suspends both processes.
_MOST_LOOKS: Final = 30
_BEATS: Final = 1 << 32
_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class Member:
    """The objects that a process which answers shares with the first one and with the others.

    Attributes:
        control: the socket on which the process sends its changes to the first process, and
            receives those of others. It is closed when the first process ends.
        share: the process's share of the connections.
        pages: the metrics pages of all processes.
        beats: a counter that the process increases while its event loop turns.
    """

    control: socket.socket
    share: Share
    pages: SharedPages
    beats: memoryview

    def beat(self) -> None:
        """Increase the counter now and twice a second, to show that this process does not hang."""
        self.beats[0] = (self.beats[0] + 1) % _BEATS
        asyncio.get_running_loop().call_later(_LOOKED_AT_EVERY / 2, self.beat)

    def tell(self, message: object) -> None:
        """Send the first process a change for the others, or `RETIRE`."""
        self.control.send(pickle.dumps(message))


def heard(control: socket.socket) -> object:
    """A change, a signal to stop, or `RETIRE`; None if the other process has ended."""
    data = b""
    with contextlib.suppress(ConnectionResetError):  # the other process ended with unread messages
        data = control.recv(_LONGEST_MESSAGE)
    return pickle.loads(data) if data else None  # noqa: S301 - of a fork of this program


def supervise(
    shared: SharedModels,
    sockets: list[socket.socket],
    listen: Listen,
    serve: Callable[[Member], int],
) -> str | None:
    """Keep a number of processes running until a signal to stop."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads do not survive a fork
    with shared_directory() as directory:
        return _Supervisor(shared, sockets, listen, serve, directory).run()


@dataclass(slots=True)
class _Child:
    """A process that answers.

    Attributes:
        slot: the index of the process among those that answer.
        control: the socket between it and the first process.
        beats: the counter of `Member.beats`.
        since: the time at which it was started, by the monotonic clock.
        last: the counter's value at the last look.
        silent: how often in a row the first process has found the counter unchanged.
    """

    slot: int
    control: socket.socket
    beats: memoryview
    since: float
    last: int = 0
    silent: int = 0

    def hangs(self) -> bool:
        """Look at the counter, and say whether it has not changed for too long."""
        self.silent = self.silent + 1 if self.beats[0] == self.last else 0
        self.last = self.beats[0]
        return self.silent >= _MOST_LOOKS


class _Supervisor:
    def __init__(
        self,
        shared: SharedModels,
        sockets: list[socket.socket],
        listen: Listen,
        serve: Callable[[Member], int],
        directory: Path,
    ) -> None:
        self._shared = shared
        self._sockets = sockets
        self._serve = serve
        self._pages = SharedPages(directory)
        self._connections = _shared_numbers(listen.processes)
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._in_place: dict[int, int] = {}  # by slot: the processes without a successor
        self._retired: set[int] = set()
        self._early: set[int] | None = None  # known when there is something to share
        self._woken, self._wakes = socket.socketpair()
        self._limit = EndLimit(listen)
        self._ends = math.inf  # the time at which the remaining processes are killed
        self._look = time.monotonic() + _LOOKED_AT_EVERY
        self._interrupted = False
        self._failure: str | None = None

    def run(self) -> str | None:
        """Run until all processes have ended."""
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno())
        self._selector.register(self._woken, selectors.EVENT_READ)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._fill()  # until there is something to share, these processes answer that
        self._shared.begin(
            lambda: self._wakes.send(b"\0"), lambda message: self._tell(message, self._children)
        )
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
            self._shared.make_changes()
        signal.set_wakeup_fd(-1)
        if self._interrupted and self._failure is None:
            raise KeyboardInterrupt
        return self._failure

    def _fill(self) -> None:
        """Start the missing processes, unless threads are at work."""
        missing = set(range(len(self._connections))) - self._in_place.keys()
        if self._shared.busy or self._limit.stopping or not missing:
            return
        self._shared.before_fork()
        gc.freeze()  # otherwise garbage collection would copy the shared memory
        for slot in sorted(missing):
            self._fork(slot)

    def _fork(self, slot: int) -> None:
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        if self._limit.stopping:  # a signal came after `_fill` had looked, and closed the sockets
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            return
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connections[slot] = 0
        beats = _shared_numbers(1)
        pid = os.fork()
        if pid == 0:
            # A service manager may signal all processes. Only the first one acts on a signal.
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
            self._shared.in_fork()
            status = self._serve(member)
        except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
            _LOG.exception("failed")
        finally:
            logging.shutdown()
            os._exit(status)

    def _relay(self, pid: int) -> None:
        message = heard(self._children[pid].control)
        if message is None:
            self._selector.unregister(self._children[pid].control)  # `_bury` follows
        elif isinstance(message, Change):
            self._shared.receive(message)
        else:
            self._retire_before(pid)

    def _retire_before(self, pid: int) -> None:
        """Let a new process, which listens now, replace the earlier ones in its slot.

        It also replaces all processes that were started before there was something to share.
        """
        slot, early = self._children[pid].slot, self._early or ()
        for earlier in takewhile(lambda other: other != pid, tuple(self._children)):
            replaced = self._children[earlier].slot == slot or earlier in early
            if replaced and earlier not in self._retired:
                self._retired.add(earlier)
                self._tell(RETIRE, [earlier])

    def _settle(self) -> None:
        """Replace all processes if there is more to share."""
        try:
            if not self._shared.settle():
                return
        except CannotServeError as error:
            self._failure = str(error)
            self._stop(signal.SIGINT)
            return
        if self._early is None:
            self._early = set(self._children)
        self._in_place.clear()

    def _tell(self, message: object, pids: Iterable[int]) -> None:
        data = pickle.dumps(message)
        for pid in pids:
            with contextlib.suppress(OSError):  # the process may have ended
                self._children[pid].control.send(data)

    def _kill_hanging(self) -> None:
        """Kill processes that hang, and those that do not end in time."""
        now = time.monotonic()
        if now < self._look:
            return
        self._look = now + _LOOKED_AT_EVERY
        for pid, child in self._children.items():
            if child.hangs() or now >= self._ends:
                _LOG.error("process hangs", extra={"fields": {"pid": pid}})
                os.kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        """Handle processes that have ended, and stop if one of them could not serve."""
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
    """An array of `count` zeros in memory that forked processes share."""
    return memoryview(mmap.mmap(-1, 4 * count)).cast("I")
