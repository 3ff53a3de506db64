"""Waits for what happens in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], told: Callable[[], object] = str) -> None:
    """Wait until a condition holds, for a minute at most; what is told if it never does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.01)
