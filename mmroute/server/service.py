"""Answers requests: routes, API keys, logs and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from mmroute.server.admin import AdminRoutes
from mmroute.server.api import routes
from mmroute.server.api_errors import ApiError, bad_request
from mmroute.server.endpoints import Endpoints
from mmroute.server.errors import error_response
from mmroute.server.exchange import Answer, Capacity, Deferred, Exchange, Route, readable
from mmroute.server.fallback import Fallback, watch_fallback
from mmroute.server.front.http import Head, Response, json_response
from mmroute.server.logs import log_request
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models
from mmroute.server.pages import pages
from mmroute.server.settings import AccessLog, ServerSettings

_LOG: Final = logging.getLogger(__name__)
_FAILURE: Final = 500
_HEALTH: Final = frozenset({"/health", "/ping", "/readyz"})  # a 503 of theirs is no failure
_VLLM_GUARDED: Final = ("/v1", "/v2", "/inference", "/cohere")
"""The paths for which vLLM wants an API key (``entrypoints/serve/middleware/authenticate.py``)."""


class Service:
    """Answers all routes of a server.

    The application calls `begin` when a head is complete, `answer` when the body is complete, and
    `end` when the last byte of the answer is sent.

    Args:
        models: the models to serve.
        settings: the settings of the service.
        on_failure: a function to call with a message if a model cannot be loaded, or if the
            settings are strict and the fallback is another engine; None to go on.

    Attributes:
        draining: whether the server is about to stop. Then each answer closes its connection, and
            ``/health`` answers 503.

    Raises:
        ValueError: the fallback's URL is malformed.
    """

    def __init__(
        self,
        models: Models,
        settings: ServerSettings,
        *,
        on_failure: Callable[[str], object] | None = None,
    ) -> None:
        self.settings = settings
        self.draining = False
        self.metrics = Metrics(models)
        self._models = models
        self._on_failure = on_failure
        self._fallback = None
        if settings.fallback_url is not None:
            self._fallback = Fallback(
                settings.fallback_url,
                api_key=settings.fallback_api_key,
                timeout=settings.fallback_timeout,
            )
        self._capacity = Capacity(settings, self.metrics)
        self._endpoints = Endpoints(models, settings, self.metrics, self._capacity, self._fallback)
        paths = pages(models, settings, self.metrics, self._capacity, lambda: self.draining)
        self._routes: dict[str, dict[str, Route]] = {
            path: readable(Route(path, page)) for path, page in paths.items()
        }
        self._routes["/ping"]["POST"] = self._routes["/ping"]["GET"]  # as vLLM has it
        for path in routes():
            answer = self._endpoints.of(self._endpoints.ask)
            self._routes[path] = {"POST": Route(path, answer, takes_body=True)}
        self._keys: list[tuple[tuple[str, ...], list[bytes]]] = []
        if settings.api_keys:
            self._keys.append((_VLLM_GUARDED, _digests(settings.api_keys)))
        self._admin: AdminRoutes | None = None
        if settings.admin_key is not None:
            self._keys.append((("/admin",), _digests((settings.admin_key,))))
            self._admin = AdminRoutes(models, self._endpoints)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, load: bool = True) -> None:
        """Begin to watch the fallback, to load the models, and to follow the engines' KV events.

        Args:
            load: whether to load the models, which the caller may have done.
        """
        models = self._models
        work = [watch_fallback(self.settings, models.backend, self.metrics, self._on_failure)]
        if load:
            work.append(_load(models, self._on_failure))
        if any(entry.source.events for entry in models.entries()):
            from mmroute.server.block_sizes import follow_events  # an extra

            work.append(follow_events(models))
        self._tasks = [asyncio.create_task(each) for each in work]

    async def close(self) -> None:
        """Close connections to other servers, and let idle threads end."""
        for task in self._tasks:
            task.cancel()
        self._endpoints.close()
        if self._fallback is not None:
            await self._fallback.close()

    def begin(self, head: Head) -> Exchange:
        """Begin a request, whose head is complete."""
        client_id = head.header(b"x-request-id")
        return Exchange(head, self._route(head), self._capacity, client_id)

    def answer(self, exchange: Exchange) -> Answer:
        """The response to a request whose body is complete, or a function that returns it later."""
        try:
            return exchange.route.answer(exchange)
        except ApiError as error:  # of a page
            return error_response(error)
        except Exception as error:  # noqa: BLE001 - one request must not end the others
            return self._failed(exchange, error)

    async def wait(self, exchange: Exchange, answer: Deferred) -> Response:
        """The response of a function that `answer` returned."""
        try:
            return await answer()
        except Exception as error:  # noqa: BLE001 - likewise
            return self._failed(exchange, error)

    def refuse(self, exchange: Exchange, error: ApiError) -> Response:
        """The response to a request whose body is over a limit."""
        return self._endpoints.refuse(exchange, error)

    def headers(self, exchange: Exchange, response: Response) -> dict[str, str]:
        """All headers of a response except its length."""
        headers = dict(response.headers)
        if response.media_type is not None:
            headers["content-type"] = response.media_type
        if self.settings.request_id_headers:
            headers["x-request-id"] = exchange.client_id or exchange.entry.request_id
        if self.draining:
            headers["connection"] = "close"
        return headers

    def end(self, exchange: Exchange, status: int) -> None:
        """End a request, because the last byte of the answer is sent or the client has gone."""
        exchange.close()
        seconds = time.perf_counter() - exchange.began
        route, head, entry = exchange.route.name, exchange.head, exchange.entry
        self.metrics.request(route, status, seconds)
        match self.settings.access_log:
            case AccessLog.NONE:
                return
            case AccessLog.INEXACT:
                failed = status >= _FAILURE and route not in _HEALTH
                if not failed and entry.outcome in (None, "exact"):
                    return
        log_request(entry, route, head.method, status, seconds)

    def _failed(self, exchange: Exchange, error: Exception) -> Response:
        if isinstance(error, RecursionError):  # JSON that could be parsed, and not be written
            too_deep = bad_request("the request is nested too deeply")
            return self._endpoints.refuse(exchange, too_deep)
        _LOG.exception("failed", extra={"fields": {"request_id": exchange.entry.request_id}})
        message = "Internal error; the log has the request ID and the place."
        return error_response(ApiError(_FAILURE, "InternalServerError", message))

    def _route(self, head: Head) -> Route:
        if self._keys and not self._may_ask(head):
            return _always(head.path if head.path in self._routes else "none", _UNAUTHORIZED)
        methods: Mapping[str, Route] | None = self._routes.get(head.path)
        if methods is None and self._admin is not None:
            methods = self._admin.methods(head.path)
        if methods is None:
            return self._redirect(head)
        return methods.get(head.method) or _not_allowed(methods)

    def _redirect(self, head: Head) -> Route:
        """Redirect to the path without slashes at its end, as vLLM's framework does."""
        path = head.path.rstrip("/")
        if path not in self._routes:
            return _NOT_FOUND
        where = f"{path}?{head.query}" if head.query else path
        return _always("none", Response(307, headers={"location": where}))

    def _may_ask(self, head: Head) -> bool:
        if head.method == "OPTIONS":
            return True
        for guarded, digests in self._keys:
            if head.path.startswith(guarded):
                scheme, _, key = head.header(b"authorization").partition(" ")
                digest = hashlib.sha256(key.encode()).digest()
                # Every key is compared, so that the time tells a client nothing about them.
                matches = [secrets.compare_digest(digest, known) for known in digests]
                return scheme.lower() == "bearer" and any(matches)
        return True


def _digests(keys: tuple[str, ...]) -> list[bytes]:
    return [hashlib.sha256(key.encode()).digest() for key in keys]


async def _load(models: Models, on_failure: Callable[[str], object] | None) -> None:
    for entry in models.load():
        await asyncio.gather(asyncio.wrap_future(entry.loading), return_exceptions=True)
        if not entry.error or entry not in models.entries():  # it may have been removed meanwhile
            continue
        if on_failure is not None:
            on_failure(entry.error)
        return
    models.warm()
    _LOG.info("ready")


def _always(name: str, response: Response) -> Route:
    return Route(name, lambda _: response)


def _not_allowed(methods: Mapping[str, Route]) -> Route:
    """The error 405 in the form of vLLM's framework."""
    allowed = {"allow": ", ".join(methods)}
    name = next(iter(methods.values())).name  # the path may hold a client's words
    return _always(name, json_response({"detail": "Method Not Allowed"}, 405, allowed))


_NOT_FOUND: Final = _always("none", json_response({"detail": "Not Found"}, 404))
_UNAUTHORIZED: Final = json_response({"error": "Unauthorized"}, 401)
