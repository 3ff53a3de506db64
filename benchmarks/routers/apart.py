"""A rule in a process of its own, as a router is, so that its time and memory can be told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fleet import Fleet, Used, first_token
from proxies import used_by
from rules import Rule
from traffic import Asked


class Address(NamedTuple):
    """A worker, as a router knows it."""

    name: str
    url: str
    events: str


class Apart:
    """The rule, which is told how many requests each worker works on.

    Args:
        fleet: the workers.
        pipe: leads to the process.
        number: the process's number.
    """

    def __init__(self, fleet: Fleet, pipe: Connection, number: int) -> None:
        self._fleet, self._pipe, self._number = fleet, pipe, number
        self._lock, self._working = threading.Lock(), [0] * len(fleet.workers)

    def send(self, asked: Asked) -> float:
        """Have a request answered; the seconds until its first token."""
        began = time.monotonic()
        with self._lock:
            self._pipe.send((asked, self._working))
            worker: int = self._pipe.recv()
            self._working[worker] += 1
        chosen = time.monotonic() - began
        try:
            return chosen + first_token(self._fleet.workers[worker].url, asked)
        finally:
            with self._lock:
                self._working[worker] -= 1

    def used(self) -> Used:
        """What the process has taken."""
        return used_by(self._number)


@contextmanager
def apart(make: Callable[[Fleet], Rule], fleet: Fleet) -> Iterator[Apart]:
    """Start a process with a fleet, and an index, of its own."""
    workers = [Address(worker.name, worker.url, worker.events) for worker in fleet.workers]
    known = fleet.model, fleet.served, fleet.settings, workers, fleet.num_blocks, fleet.loras
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_decide, args=(there, make, known))
    process.start()
    try:
        here.recv()  # it is ready
        yield Apart(fleet, here, process.pid or 0)
    finally:
        process.kill()
        process.join()


def _decide(pipe: Connection, make: Callable[[Fleet], Rule], known: tuple[Any, ...]) -> None:
    lock = threading.Lock()
    with Fleet(*known) as fleet:
        rule = make(fleet)
        with fleet.listening(lock):
            pipe.send(None)
            while True:
                question = pipe.recv()
                with lock:
                    worker = rule(*question).worker
                pipe.send(worker)
