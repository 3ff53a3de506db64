"""Limits of what one server handles at a time. A request beyond them gets a 503 at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, Final

from mmroute.server.api_errors import ApiError
from mmroute.server.errors import too_large
from mmroute.server.metrics import Metrics
from mmroute.server.settings import ServerSettings

_RETRY: Final = {"retry-after": "1"}
_CLOSE: Final = {"connection": "close"}  # the rest of the body will not be read


class Capacity:
    """Counts the requests that are being answered. Belongs to one event loop."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
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


class Reservation:
    """The part of the capacity that one request takes. It is released when no work goes on."""

    __slots__ = ("_bytes", "_capacity", "_entered", "_follows_links", "_running")

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._bytes = 0
        self._entered = False
        self._follows_links = False
        self._running: Future[Any] | None = None

    def expect(self, size: int) -> None:
        """Refuse a body by the length that the head announces, before any of it is read."""
        if size > self._capacity.settings.max_body_bytes:
            raise self._too_large()

    def hold(self, size: int) -> None:
        """Count more bytes of a body."""
        capacity, settings = self._capacity, self._capacity.settings
        if self._bytes + size > settings.max_body_bytes:
            raise self._too_large()
        if capacity.held_bytes + size > settings.max_total_body_bytes:
            raise capacity.busy("memory", _CLOSE)
        self._bytes += size
        capacity.held_bytes += size

    def keep(self, size: int) -> None:
        """Count more bytes without checking a limit, such as an answer to a slow client."""
        self._bytes += size
        self._capacity.held_bytes += size

    def enter(self) -> None:
        """Count a request whose body is complete."""
        if self._capacity.requests >= self._capacity.settings.max_concurrency:
            raise self._capacity.busy("concurrency", {})
        self._entered = True
        self._capacity.requests += 1

    def follow_links(self) -> None:
        """Count the request among those whose links are followed."""
        capacity = self._capacity
        if capacity.following_links >= capacity.settings.link_workers:
            raise capacity.busy("links", {})
        self._follows_links = True
        capacity.following_links += 1

    def runs(self, future: Future[Any]) -> None:
        """Note the work of a thread for the request; the thread cannot be stopped."""
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

    def _too_large(self) -> ApiError:
        return too_large(f"{self._capacity.settings.max_body_bytes} bytes", "body", _CLOSE)

    def _release(self) -> None:
        capacity = self._capacity
        capacity.held_bytes -= self._bytes
        capacity.requests -= self._entered
        capacity.following_links -= self._follows_links
        self._bytes, self._entered, self._follows_links = 0, False, False
