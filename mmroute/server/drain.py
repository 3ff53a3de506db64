"""The end of a server, as its parts are told of it."""

from __future__ import annotations

__all__ = ["Drain"]


class Drain:
    """Whether the server is about to stop; then it is not healthy, and keeps no connection."""

    def __init__(self) -> None:
        self.begun = False
