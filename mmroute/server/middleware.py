"""What surrounds every request: its ID, its key, its line in metrics and log."""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmroute.server.endpoints import LOG_ENTRY, json_response
from mmroute.server.logs import LogEntry, log_request
from mmroute.server.metrics import Metrics
from mmroute.server.settings import AccessLog, ServerSettings

__all__ = ["VLLM_GUARDED", "Authentication", "Drain", "Observation"]

VLLM_GUARDED: Final = ("/v1", "/v2", "/inference", "/cohere")
"""What vLLM 0.33.0 wants an API key for, and nothing else
(``entrypoints/serve/middleware/authenticate.py``)."""
_FAILURE: Final = 500
_HEALTH: Final = "/health"  # says 503 until it is healthy, which is no failure


class Drain:
    """Whether the server is about to stop; then it is not healthy, and keeps no connection."""

    def __init__(self) -> None:
        self.begun = False


class Authentication:
    """An API key for the paths that begin so, and for no others."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...], guarded: tuple[str, ...]) -> None:
        self._app = app
        self._guarded = guarded
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        guarded = (
            scope["type"] == "http"
            and scope["method"] != "OPTIONS"
            and scope["path"].startswith(self._guarded)
        )
        if guarded and not self._knows(Headers(scope=scope).get("authorization", "")):
            await json_response({"error": "Unauthorized"}, 401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, header: str) -> bool:
        scheme, _, key = header.partition(" ")
        digest = hashlib.sha256(key.encode()).digest()
        # Every key is compared, however many: how long it takes says nothing.
        found = [secrets.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(found)


class Observation:
    """Counts and logs requests; gives each an ID."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        metrics: Metrics,
        drain: Drain,
        routes: frozenset[str],
    ) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._drain = drain
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        given = next((v for k, v in scope["headers"] if k == b"x-request-id"), None)
        # It need not be secret; the system's own random numbers cost as much as a small answer.
        own = f"{random.getrandbits(128):032x}"
        request_id = own if given is None else given.decode("latin-1")
        entry = scope[LOG_ENTRY] = LogEntry(request_id)
        status = _FAILURE

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(message, request_id)
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            path = scope["path"]
            route = path if path in self._routes else "none"
            seconds = time.perf_counter() - began
            self._metrics.request(route, status, seconds)
            if self._is_logged(entry, route, status):
                log_request(entry, route, scope["method"], status, seconds)

    def _add_headers(self, message: Message, request_id: str) -> None:
        if self._settings.request_id_headers:
            MutableHeaders(raw=message["headers"]).append("X-Request-Id", request_id)
        if self._drain.begun:
            MutableHeaders(raw=message["headers"])["Connection"] = "close"

    def _is_logged(self, entry: LogEntry, route: str, status: int) -> bool:
        match self._settings.access_log:
            case AccessLog.ALL:
                return True
            case AccessLog.INEXACT:
                failed = status >= _FAILURE and route != _HEALTH
                return failed or entry.outcome not in (None, "exact")
        return False
