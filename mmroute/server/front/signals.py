"""What a signal to stop says: how long the rest of a server may take."""

from __future__ import annotations

import signal
from typing import Final

from mmroute.server.front.listening import Listen

_LAST_WORDS: Final = 5.0  # seconds beyond those that a process has to end


class EndLimit:
    """How long a server may take to end after each signal.

    Args:
        listen: says how long the server drains, and how long requests may take after that.

    Attributes:
        stopping: whether there was a signal.
    """

    def __init__(self, listen: Listen) -> None:
        self.stopping = False
        self._listen = listen
        self._closing = False  # the next signal ends all at once

    def seconds_after(self, number: int) -> float:
        """The seconds until what is left is killed. The first SIGTERM drains, others do not."""
        drains = number == signal.SIGTERM and not self.stopping
        seconds = 0.0 if self._closing else self._listen.grace
        self.stopping, self._closing = True, not drains
        return seconds + (self._listen.drain if drains else 0.0) + _LAST_WORDS
