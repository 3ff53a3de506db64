"""A limit on what happens at a time, whose waiting threads are served in the order they came."""

from __future__ import annotations

import threading
from collections import deque


class FairSemaphore:
    """A limited number of places. A thread that is turned away at first gets the next free one.

    `threading.Semaphore` lets a thread that has just released a place take it again before a
    thread that waits for it wakes up: under load some threads then wait until their deadline.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take a place."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=timeout):
            return True
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        return True  # the place came between the end of the time and the lock

    def release(self) -> None:
        """Give a place to the thread that has waited longest, or leave it free."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
