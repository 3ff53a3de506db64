"""How much one server takes on at a time. A request beyond that gets a 503 at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, Final

from mmroute.engines.vllm.api import ApiError
from mmroute.server.errors import too_large
from mmroute.server.metrics import Metrics
from mmroute.server.settings import ServerSettings

_RETRY: Final = {"retry-after": "1"}
_CLOSE: Final = {"connection": "close"}  # there is more of the body, and nobody will read it


class Capacity:
    """Counts the requests that are being answered. Belongs to one event loop.

    Args:
        settings: the server's settings, which have the limits.
        metrics: count the requests that are turned away.
    """

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
        """The error of a request that meets a limit now, and may pass later."""
        return ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "ServiceUnavailableError",
            f"The server is at its limit ({limit}); try again.",
            headers={**_RETRY, **headers},
            limit=limit,
        )


class Reservation:
    """What one request holds; given back once, when nothing of it runs any more."""

    __slots__ = ("_bytes", "_capacity", "_entered", "_follows_links", "_running")

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._bytes = 0
        self._entered = False
        self._follows_links = False
        self._running: Future[Any] | None = None

    def expect(self, size: int) -> None:
        """Refuse a body by the bytes that its head announces, before any is read.

        Raises:
            ApiError: 413.
        """
        if size > self._capacity.settings.max_body_bytes:
            raise self._too_large()

    def hold(self, size: int) -> None:
        """Count more bytes of a body.

        Raises:
            ApiError: 413, or 503.
        """
        capacity, settings = self._capacity, self._capacity.settings
        if self._bytes + size > settings.max_body_bytes:
            raise self._too_large()
        if capacity.held_bytes + size > settings.max_total_body_bytes:
            raise capacity.busy("memory", _CLOSE)
        self.keep(size)

    def keep(self, size: int) -> None:
        """Count more bytes without a limit: those of an answer that its client does not take."""
        self._bytes += size
        self._capacity.held_bytes += size

    def enter(self) -> None:
        """Count the request, whose body is complete.

        Raises:
            ApiError: 503.
        """
        if self._capacity.requests >= self._capacity.settings.max_concurrency:
            raise self._capacity.busy("concurrency", {})
        self._entered = True
        self._capacity.requests += 1

    def follow_links(self) -> None:
        """Count the request among those that wait for other servers.

        Raises:
            ApiError: 503.
        """
        capacity = self._capacity
        if capacity.following_links >= capacity.settings.link_workers:
            raise capacity.busy("links", {})
        self._follows_links = True
        capacity.following_links += 1

    def runs(self, future: Future[Any]) -> None:
        """A thread works for the request, and cannot be stopped."""
        self._running = future

    def close(self) -> None:
        """Give everything back: the answer is sent, or nobody waits for it.

        What waits for a thread is dropped. What a thread holds is given back when it ends.
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
        self._capacity.held_bytes -= self._bytes
        self._capacity.requests -= self._entered
        self._capacity.following_links -= self._follows_links
        self._bytes, self._entered, self._follows_links = 0, False, False
