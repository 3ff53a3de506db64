"""Limits of what one server handles at a time. A request beyond them gets a 503 at once."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from mmroute.server.api_errors import ApiError
from mmroute.server.metrics import Metrics
from mmroute.server.settings import ServerSettings

_RETRY: Final = {"retry-after": "1"}


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
