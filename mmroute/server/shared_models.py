"""The models of several processes: the first process loads them, and makes their changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmroute.server.api_errors import ApiError
from mmroute.server.entry import Entry
from mmroute.server.models import Change, Models, NameTakenError, reclaim


class CannotServeError(Exception):
    """No model could be loaded at first, so that the server ends; the message says why."""


class SharedModels:
    """Models that all processes answer with. The first process loads them, in threads."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._waiting: list[Change] = []
        self._loading: Sequence[Entry] = ()
        self._loaded_once = False
        self._wake: Callable[[], object] = lambda: None
        self._tell: Callable[[object], None] = lambda _: None

    @property
    def busy(self) -> bool:
        """Whether a model is being loaded: its threads do not survive a fork."""
        return bool(self._loading)

    def begin(self, wake: Callable[[], object], tell: Callable[[object], None]) -> None:
        """Begin to load them."""
        self._wake, self._tell = wake, tell
        self._wait_for(self._models.load())

    def settle(self) -> bool:
        """Whether a model was loaded that new processes are needed for."""
        if not self._loading or not all(entry.loading.done() for entry in self._loading):
            return False
        entries, self._loading = self._loading, ()
        self._models.close(wait=True)  # wait for other work of the threads
        self._models.renew()
        failed = next((entry for entry in entries if entry.error), None)
        if failed is None:
            self._loaded_once = True
            return True
        if not self._loaded_once:
            raise CannotServeError(failed.error)
        self._tell(Change("failed", failed.error, failed.source))
        return False

    def before_fork(self) -> None:
        """Bring threads and memory into a state that processes can share; nothing stays frozen."""
        self._models.close(wait=True)
        self._models.renew()
        self._models.warm()
        reclaim()

    def in_fork(self) -> None:
        """Take the models over in a process that answers."""
        self._models.renew()
        self._models.loads = False
        self._models.warm()

    def receive(self, change: Change) -> None:
        """Keep a change that a process has made, for the others."""
        if change.kind == "replace":  # one that waits to be replaced is not loaded for nothing
            self._waiting = [
                c for c in self._waiting if (c.kind, c.name) != (change.kind, change.name)
            ]
        self._waiting.append(change)

    def make_changes(self) -> None:
        """Make the changes that wait, one by one: the next after the last one's model is loaded."""
        while self._waiting and not self._loading:
            change, before = self._waiting.pop(0), self._models.entries()
            try:
                entry = self._models.apply(change)
            except (ApiError, NameTakenError):  # an earlier change made this one impossible
                continue
            self._tell(change)
            new = entry.replacement if change.kind == "replace" else entry
            if change.source is not None and new is not None and new not in before:
                self._wait_for([new])

    def _wait_for(self, entries: Sequence[Entry]) -> None:
        self._loading = entries
        for entry in entries:
            entry.loading.add_done_callback(lambda _: self._wake())
