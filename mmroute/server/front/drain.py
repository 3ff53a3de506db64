"""The end of a server, as its parts are told of it."""

from __future__ import annotations


class Drain:
    """Whether a process is about to stop; then it keeps no connection.

    Attributes:
        begun: the server is, and is not healthy any more.
        leaving: this process is, and another one has taken its place.
    """

    def __init__(self) -> None:
        self.begun = self.leaving = False
