"""A stopwatch for the stages of the request path, for `mmroute bench` and the server's metrics."""

from __future__ import annotations

import threading
import time
from enum import StrEnum


class Stage(StrEnum):
    """The stages of a request, in their order."""

    PARSE = "parse"
    """Checks of the request, messages and image headers."""
    RENDER = "render"
    """Rendering the chat template; in Mistral format also encoding, by mistral-common."""
    ENCODE = "encode"
    """Encoding the text."""
    COUNT = "count"
    """Counting the tokens of each item, and making its replacement."""
    PLACE = "place"
    """Replacing placeholders; some families encode the text again for it."""
    IDENTIFY = "identify"
    """Computing the identities of items, and checking the expanded prompt."""
    HASH = "hash"
    """Computing block hashes with their extra keys; not counted in a request's total."""


class Stopwatch(threading.local):
    """Adds up the time of each stage of one request, in nanoseconds, for each thread apart."""

    def __init__(self) -> None:
        self.runs = True  # whether the request is timed
        self._spent: dict[Stage, int] = {}
        self._last = 0

    def start(self, *, runs: bool = True) -> None:
        """Begin with a new request, and time it if `runs` is true."""
        self.runs = runs
        if runs:
            self._spent = {}
            self.resume()

    def resume(self) -> None:
        """Leave out the time since the last lap."""
        self._last = time.perf_counter_ns()

    def lap(self, stage: Stage) -> None:
        """Add the time since the last lap, `start` or `resume` to a stage."""
        now = time.perf_counter_ns()
        self._spent[stage] = self._spent.get(stage, 0) + now - self._last
        self._last = now

    def spent(self) -> dict[Stage, int]:
        """The time of each stage since `start`, in nanoseconds."""
        return dict(self._spent)
