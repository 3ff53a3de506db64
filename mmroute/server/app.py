"""The ASGI application: routes, and what surrounds them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mmroute.health.tested_versions import version_of
from mmroute.server.admin import ADMIN_PREFIX, admin_routes
from mmroute.server.capacity import Capacity
from mmroute.server.endpoints import Endpoints, Handler, error_response, json_response
from mmroute.server.errors import ApiError
from mmroute.server.fallback import Fallback
from mmroute.server.metrics import Metrics
from mmroute.server.middleware import VLLM_GUARDED, Authentication, Drain, Observation
from mmroute.server.models import Models, ModelStatus
from mmroute.server.openapi import openapi
from mmroute.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from mmroute.server.render import render_chat, render_completion
from mmroute.server.settings import ServerSettings
from mmroute.server.tokenization import detokenize, tokenize, tokenizer_info

__all__ = ["create_app"]

_LOG: Final = logging.getLogger(__name__)
# Routes are tried in turn, so the busiest one stands first.
_POSTED: Final[dict[str, tuple[TypeAdapter[Any], Handler[Any]]]] = {
    "/v1/chat/completions/render": (TypeAdapter(ChatCompletionRequest), render_chat),
    "/tokenize": (TypeAdapter(TokenizeRequest), tokenize),
    "/v1/completions/render": (TypeAdapter(CompletionRequest), render_completion),
    "/detokenize": (TypeAdapter(DetokenizeRequest), detokenize),
}


def create_app(
    models: Models,
    settings: ServerSettings | None = None,
    *,
    drain: Drain | None = None,
    on_failure: Callable[[str], object] | None = None,
) -> Starlette:
    """The application. Models are loaded when its lifespan begins, and ``/health`` says when.

    Args:
        models: to serve.
        settings: limits and choices.
        drain: set when the server is about to stop.
        on_failure: called with a message where a model cannot be loaded; nothing else is done.

    Raises:
        ValueError: the fallback's URL is malformed.
    """
    settings, drain = settings or ServerSettings(), drain or Drain()
    metrics = Metrics(models)
    fallback = None
    if settings.fallback_url is not None:
        fallback = Fallback(
            settings.fallback_url,
            api_key=settings.fallback_api_key,
            timeout=settings.fallback_timeout,
        )
    tracing = None
    if settings.otlp_traces_endpoint is not None:
        from mmroute.server.tracing import Tracing  # an extra

        tracing = Tracing(settings.otlp_traces_endpoint)
    endpoints = Endpoints(models, settings, metrics, Capacity(settings, metrics), fallback)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loading = asyncio.create_task(_load(models, on_failure))
        yield
        loading.cancel()
        endpoints.close()
        if fallback is not None:
            await fallback.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    routes = [*_posted_routes(endpoints), *_read_routes(models, settings, metrics, drain)]
    if settings.admin_key is not None:
        routes += admin_routes(models, endpoints)
    names = frozenset(route.path for route in routes)
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _failed},
    )
    middleware = [Middleware(Observation, settings, metrics, drain, names)]
    if tracing is not None:
        middleware.append(tracing.middleware(frozenset(_POSTED)))
    if settings.api_keys:
        middleware.append(Middleware(Authentication, settings.api_keys, VLLM_GUARDED))
    if settings.admin_key is not None:
        middleware.append(Middleware(Authentication, (settings.admin_key,), (ADMIN_PREFIX,)))
    app.user_middleware = middleware
    return app


def _posted_routes(endpoints: Endpoints) -> list[Route]:
    return [
        Route(path, endpoints.of(kind, handler), methods=["POST"])
        for path, (kind, handler) in _POSTED.items()
    ]


def _read_routes(
    models: Models, settings: ServerSettings, metrics: Metrics, drain: Drain
) -> list[Route]:
    version = {"version": _engine_version(models), "mmroute": version_of("mmroute")}

    async def health(_: Request) -> Response:
        return Response(status_code=200 if models.ready and not drain.begun else 503)

    async def show_version(_: Request) -> Response:
        return json_response(version)

    async def show_models(_: Request) -> Response:
        return json_response(_model_list(models))

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def show_openapi(_: Request) -> Response:
        return json_response(openapi(settings))

    async def show_tokenizer(request: Request) -> Response:
        try:
            name = request.query_params.get("model")
            models.find(name)
            source = models.entry(name).source
            return json_response(await asyncio.to_thread(tokenizer_info, source))
        except ApiError as error:
            return error_response(error)

    found: dict[str, Callable[[Request], Any]] = {
        "/health": health,
        "/version": show_version,
        "/v1/models": show_models,
        "/metrics": show_metrics,
        "/openapi.json": show_openapi,
    }
    if settings.tokenizer_info:
        found["/tokenizer_info"] = show_tokenizer
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in found.items()]
    for route in routes:
        (route.methods or set()).discard("HEAD")  # vLLM answers 405
    return routes


async def _load(models: Models, on_failure: Callable[[str], object] | None) -> None:
    for entry in models.load():
        await asyncio.gather(asyncio.wrap_future(entry.loading), return_exceptions=True)
        if not entry.error or entry not in models.entries():  # or it was removed meanwhile
            continue
        if on_failure is not None:
            on_failure(entry.error)
        return
    _LOG.info("ready")


def _engine_version(models: Models) -> str:
    return models.backend.version


def _model_list(models: Models) -> dict[str, Any]:
    """Every served name, as vLLM lists them; the length of a model's context once it is loaded."""
    cards = []
    for name, entry in models.names():
        if entry.status is ModelStatus.FAILED:
            continue
        loaded = entry.loaded
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": models.created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        cards.append({
            "id": name,
            "object": "model",
            "created": models.created,
            "owned_by": "vllm",
            "root": entry.source.model,
            "parent": None,
            "max_model_len": None if loaded is None else loaded.max_model_len,
            "permission": [permission],
        })  # fmt: skip
    return {"object": "list", "data": cards}


async def _http_error(_: Request, error: Exception) -> Response:
    """An unknown path or method, in the framework's own shape, as vLLM leaves it."""
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    return json_response({"detail": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    _LOG.error("failed", exc_info=error)
    return error_response(ApiError(500, "InternalServerError", "Internal error; see the log."))
