"""One request, from the end of its head to the last byte of its answer, and how many there may be.

A request beyond a limit gets a 503 at once.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from mmroute.server.api_errors import ApiError
from mmroute.server.errors import too_large
from mmroute.server.front.http import Head, Response
from mmroute.server.logs import LogEntry
from mmroute.server.metrics import Metrics
from mmroute.server.settings import ServerSettings

CLIENT_HAS_GONE: Final = 499
"""The status in logs and metrics if the client closed the connection, as proxies write it."""

_RETRY: Final = {"retry-after": "1"}
_CLOSE: Final = {"connection": "close"}  # the rest of the body will not be read
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


class Capacity:
    """Counts the requests that are being answered. Belongs to one event loop."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings = settings
        self.requests = 0
        self.following_links = 0
        self.held_bytes = 0
        metrics.in_flight.set_function(lambda: self.requests)
        metrics.following_links.set_function(lambda: self.following_links)
        metrics.held_bytes.set_function(lambda: self.held_bytes)

    def busy(self, limit: str, headers: dict[str, str]) -> ApiError:
        """The error of a request that is over a limit now, and may be repeated."""
        return ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "ServiceUnavailableError",
            f"The server is at its limit ({limit}); try again.",
            headers={**_RETRY, **headers},
            limit=limit,
        )


class Exchange:
    """A request while it is received and answered, and its part of the server's capacity."""

    __slots__ = (
        "_body", "_capacity", "_entered", "_follows_links", "_held", "_running", "began",
        "client_id", "complete", "entry", "head", "route",
    )  # fmt: skip

    def __init__(self, head: Head, route: Route, capacity: Capacity, client_id: str) -> None:
        self.head = head
        self.route = route
        self.began = time.perf_counter()  # when the head was complete
        self.client_id = client_id  # of the request; empty if there is none
        self.complete = False  # whether all of the body has arrived
        self.entry = LogEntry(client_id)
        self._body: bytes | io.BytesIO = b""
        self._capacity = capacity
        self._held = 0  # bytes
        self._entered = self._follows_links = False  # whether it counts as such
        self._running: Future[Any] | None = None  # in a thread, which cannot be stopped

    def expect(self) -> None:
        """Check the length of the body that the head announces, before any of it is read."""
        announced = self.head.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:_DIGITS]) > self._most:
            raise self._too_large()

    def take(self, chunk: bytes | memoryview) -> None:
        """Copy the next part of the body."""
        capacity = self._capacity
        if self._held + len(chunk) > self._most:
            raise self._too_large()
        if capacity.held_bytes + len(chunk) > capacity.settings.max_total_body_bytes:
            raise capacity.busy("memory", _CLOSE)
        self.keep(len(chunk))
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

    def keep(self, size: int) -> None:
        """Count more bytes without checking a limit, such as an answer to a slow client."""
        self._held += size
        self._capacity.held_bytes += size

    def enter(self) -> None:
        """Count a request whose body is complete."""
        if self._capacity.requests >= self._capacity.settings.max_concurrency:
            raise self._capacity.busy("concurrency", {})
        self._entered = True
        self._capacity.requests += 1

    def follow_links(self) -> None:
        """Count the request among those whose links are followed."""
        if self._capacity.following_links >= self._capacity.settings.link_workers:
            raise self._capacity.busy("links", {})
        self._follows_links = True
        self._capacity.following_links += 1

    def runs(self, future: Future[Any]) -> None:
        """Note the work of a thread for the request."""
        self._running = future

    def close(self) -> None:
        """Release everything, because the answer is sent or the client has gone.

        Work that waits for a thread is cancelled. If a thread is at work, the release waits for it.
        """
        running = self._running
        if running is None or running.done() or running.cancel():
            self._release()
            return
        loop = asyncio.get_running_loop()
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))

    @property
    def _most(self) -> int:
        return self._capacity.settings.max_body_bytes

    def _too_large(self) -> ApiError:
        return too_large(f"{self._most} bytes", "body", _CLOSE)

    def _release(self) -> None:
        capacity = self._capacity
        capacity.held_bytes -= self._held
        capacity.requests -= self._entered
        capacity.following_links -= self._follows_links
        self._held, self._entered, self._follows_links = 0, False, False
