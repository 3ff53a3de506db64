"""Stopwatches for the request path: what each stage of a real request takes.

`mmroute bench` times requests with one, and a server all of its own.
"""

from __future__ import annotations

import threading
import time
from enum import StrEnum


class Stage(StrEnum):
    """The stages of a request, in their order."""

    PARSE = "parse"
    """Checks, messages taken apart, image headers."""
    RENDER = "render"
    """The chat template; in Mistral's format mistral-common, which encodes as well."""
    ENCODE = "encode"
    """The text, to token IDs."""
    COUNT = "count"
    """Items, to replacements."""
    PLACE = "place"
    """Placeholders are found and replaced; families that encode anew for it do so here."""
    IDENTIFY = "identify"
    """Items, to identities; and the checks of the expanded prompt."""
    HASH = "hash"
    """Block hashes, with their extra keys; not part of the whole."""


class Stopwatch(threading.local):
    """Adds up what each stage of one request takes, in nanoseconds; each thread has its own.

    Attributes:
        runs: whether the request is timed.
    """

    def __init__(self) -> None:
        self.runs = True
        self._spent: dict[Stage, int] = {}
        self._last = 0

    def start(self, *, runs: bool = True) -> None:
        """Begin with a new request, which is timed or not."""
        self.runs = runs
        if runs:
            self._spent = {}
            self.resume()

    def resume(self) -> None:
        """Leave out the time since the last lap."""
        self._last = time.perf_counter_ns()

    def lap(self, stage: Stage) -> None:
        """Count the time since the last lap (or `start`, or `resume`) to a stage."""
        now = time.perf_counter_ns()
        self._spent[stage] = self._spent.get(stage, 0) + now - self._last
        self._last = now

    def spent(self) -> dict[Stage, int]:
        """The stages that the request had since `start`."""
        return dict(self._spent)
