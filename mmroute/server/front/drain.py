"""The state of a server or process that is about to stop."""

from __future__ import annotations


class Drain:
    """Whether a process is about to stop. Then each answer closes its connection.

    Attributes:
        begun: whether the server is about to stop; ``/health`` answers 503 then.
        leaving: whether this process is about to stop because another one replaced it.
    """

    def __init__(self) -> None:
        self.begun = self.leaving = False
