"""How a server or a process stops: whether it is about to, and the time it may take."""

from __future__ import annotations

import signal
from typing import Final

from mmroute.server.front.listening import Listen

_LAST_WORDS: Final = 5.0  # seconds after the limit, until a process is killed


class Drain:
    """Whether a process is about to stop. Then each answer closes its connection.

    Attributes:
        begun: whether the server is about to stop; ``/health`` answers 503 then.
        leaving: whether this process is about to stop because another one replaced it.
    """

    def __init__(self) -> None:
        self.begun = self.leaving = False


class EndLimit:
    """The time that a server may take to end after each signal.

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
