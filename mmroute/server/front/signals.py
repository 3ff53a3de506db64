"""The time limits that a signal to stop sets."""

from __future__ import annotations

import signal
from typing import Final

from mmroute.server.front.listening import Listen

_LAST_WORDS: Final = 5.0  # seconds after the limit, until a process is killed


class EndLimit:
    """The time that a server may take to end after each signal.

    Args:
        listen: the settings with the seconds for draining and for the last requests.

    Attributes:
        stopping: whether a signal has arrived.
    """

    def __init__(self, listen: Listen) -> None:
        self.stopping = False
        self._listen = listen
        self._closing = False  # the next signal ends all at once

    def seconds_after(self, number: int) -> float:
        """The seconds until the process is killed. Only the first SIGTERM drains."""
        drains = number == signal.SIGTERM and not self.stopping
        seconds = 0.0 if self._closing else self._listen.grace
        self.stopping, self._closing = True, not drains
        return seconds + (self._listen.drain if drains else 0.0) + _LAST_WORDS
