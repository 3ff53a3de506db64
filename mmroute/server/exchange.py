"""One request and its answer, from the end of its head to the last byte of the answer."""

from __future__ import annotations

import io
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mmroute.server.capacity import Reservation
from mmroute.server.front.http import Head, Response
from mmroute.server.logs import LogEntry

CLIENT_HAS_GONE: Final = 499
"""The status in logs and metrics if the client closed the connection, as proxies write it."""

_DIGITS: Final = 18  # a length with more digits is too large in any case

Deferred: TypeAlias = Callable[[], Awaitable[Response]]
"""A function that returns the response later."""
Answer: TypeAlias = Response | Deferred


@dataclass(frozen=True, slots=True)
class Route:
    """The function that answers one path and method."""

    name: str  # in metrics and logs
    answer: Callable[[Exchange], Answer]  # called when the body is complete
    takes_body: bool = False


def readable(route: Route) -> dict[str, Route]:
    """A route for GET and for HEAD. The application leaves the body out of an answer to HEAD."""
    return {"GET": route, "HEAD": route}


class Exchange:
    """A request while it is received and answered."""

    __slots__ = ("_body", "began", "client_id", "complete", "entry", "head", "reservation", "route")

    def __init__(self, head: Head, route: Route, reservation: Reservation, client_id: str) -> None:
        self.head = head
        self.route = route
        self.reservation = reservation
        self.began = time.perf_counter()  # when the head was complete
        self.client_id = client_id  # of the request; empty if there is none
        self.complete = False  # whether all of the body has arrived
        self.entry = LogEntry(client_id)
        self._body: bytes | io.BytesIO = b""

    def expect(self) -> None:
        """Check the length of the body that the head announces."""
        announced = self.head.headers.get(b"content-length", b"")
        if announced.isdigit():
            self.reservation.expect(int(announced[:_DIGITS]))

    def take(self, chunk: bytes | memoryview) -> None:
        """Copy the next part of the body."""
        self.reservation.hold(len(chunk))
        if not self.route.takes_body:
            return
        if not self._body:
            self._body = bytes(chunk)
            return
        if isinstance(self._body, bytes):
            self._body = io.BytesIO(self._body)
            self._body.seek(0, io.SEEK_END)
        self._body.write(chunk)

    def body(self) -> bytes:
        """The complete body. It can be taken once."""
        kept, self._body = self._body, b""
        raw = kept if isinstance(kept, bytes) else kept.getvalue()  # not a copy
        self.entry.bytes = len(raw)
        return raw
