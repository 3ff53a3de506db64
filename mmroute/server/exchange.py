"""One request and its answer, from the end of its head to the last byte of the answer."""

from __future__ import annotations

import io
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from mmroute.server.capacity import Reservation
from mmroute.server.front.http import Head, Response
from mmroute.server.logs import LogEntry

CLIENT_HAS_GONE: Final = 499
"""The status of an exchange whose answer nobody took, as proxies write it."""

_DIGITS: Final = 18  # more are too many in any case

Deferred: TypeAlias = Callable[[], Awaitable[Response]]
"""Gives a response that has to be waited for."""
Answer: TypeAlias = Response | Deferred


class Route:
    """What one path and method is answered by.

    Args:
        name: its name in metrics and logs.
        answer: is called when the body is complete.
        takes_body: whether the body is kept.
    """

    __slots__ = ("answer", "name", "takes_body")

    def __init__(
        self, name: str, answer: Callable[[Exchange], Answer], *, takes_body: bool = False
    ) -> None:
        self.name = name
        self.answer = answer
        self.takes_body = takes_body


def readable(route: Route) -> dict[str, Route]:
    """A route for GET, and for HEAD, whose answer the front sends without its body."""
    return {"GET": route, "HEAD": route}


class Exchange:
    """A request while it is received and answered.

    Args:
        head: the request's head.
        route: the route that answers it.
        reservation: the bytes that it may hold.
        given_id: the ID that the client gave the request; empty if it gave none.

    Attributes:
        began: when the head was complete, by the performance counter.
        entry: the log line of the request.
    """

    __slots__ = ("_body", "began", "entry", "head", "reservation", "route")

    def __init__(self, head: Head, route: Route, reservation: Reservation, given_id: str) -> None:
        self.head = head
        self.route = route
        self.reservation = reservation
        self.began = time.perf_counter()
        self.entry = LogEntry(given_id)
        self._body: bytes | io.BytesIO = b""

    def expect(self) -> None:
        """The head is complete.

        Raises:
            ApiError: 413: it announces a body that is too large.
        """
        announced = self.head.headers.get(b"content-length", b"")
        if announced.isdigit():
            self.reservation.expect(int(announced[:_DIGITS]))

    def take(self, chunk: bytes | memoryview) -> None:
        """More of the body; it is copied.

        Raises:
            ApiError: 413, 503: it is too much.
        """
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
        """All of the body, which is not kept here any longer."""
        kept, self._body = self._body, b""
        raw = kept if isinstance(kept, bytes) else kept.getvalue()  # not a copy
        self.entry.bytes = len(raw)
        return raw
