"""Routes without a body: health, versions, models, metrics, the OpenAPI document."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from mmroute.health.tested_versions import version_of
from mmroute.server.entry import ModelStatus
from mmroute.server.errors import query_parameters
from mmroute.server.exchange import Capacity, Exchange
from mmroute.server.front.http import Response, json_response
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models
from mmroute.server.openapi import openapi
from mmroute.server.settings import ServerSettings


def pages(
    models: Models,
    settings: ServerSettings,
    metrics: Metrics,
    capacity: Capacity,
    is_draining: Callable[[], bool],
) -> Mapping[str, Callable[[Exchange], Response]]:
    """The function that answers each path without a body."""
    matched = models.backend.release
    version = {
        "version": matched.version,
        "engine": matched.name,
        "frontend": matched.frontend,
        "mmroute": version_of("mmroute"),
    }

    def health(_: Exchange) -> Response:
        return Response(200 if models.ready and not is_draining() else 503)

    def readiness(exchange: Exchange) -> Response:
        name = _model_name(exchange)
        entries = [models.entry(name)] if name else models.entries()
        ready = entries[0].loaded is not None if name else models.ready
        statuses = {entry.source.names[0]: entry.status.value for entry in entries}
        status = 200 if ready and not is_draining() else 503
        watched = [
            {"worker": of.worker, "model": of.model, "version": of.version, "state": known.state,
             "difference": known.difference, "requests": known.counts}
            for entry in entries if entry.trust is not None
            for of, known in entry.trust.states().items()
        ]  # fmt: skip
        said = {"draining": is_draining(), "models": statuses, "predictions": watched}
        return json_response(said, status)

    # Making it takes as long as answering a hundred small requests.
    document = functools.cache(lambda: json_response(openapi(settings, found)))
    found: dict[str, Callable[[Exchange], Response]] = {
        "/health": health,
        "/ping": health,
        "/livez": lambda _: Response(200),
        "/readyz": readiness,
        "/load": lambda _: json_response({"server_load": capacity.requests}),
        "/kv_event_sources": lambda _: json_response({}),  # as of vLLM's renderer
        "/version": lambda _: json_response(version),
        "/v1/models": lambda _: json_response(_model_list(models)),
        "/metrics": lambda _: Response(200, metrics.page(), media_type=CONTENT_TYPE_LATEST),
        "/openapi.json": lambda _: document(),
    }
    if settings.tokenizer_info:
        found["/tokenizer_info"] = lambda exchange: json_response(
            models.find(_model_name(exchange)).tokenizer_info
        )
    return found


def _model_name(exchange: Exchange) -> str:
    return query_parameters(exchange.head.query, ("model",)).get("model", "")


def _model_list(models: Models) -> dict[str, Any]:
    """Every served name, in the form of vLLM's list. A loaded model has its context's length."""
    cards = []
    for name, entry in models.names():
        if entry.status is ModelStatus.FAILED:
            continue
        loras = entry.source.engine_settings.loras
        loaded = None if name in loras else entry.loaded
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
            "owned_by": entry.loaded.model.engine.release.name if entry.loaded else "vllm",
            "root": loras.get(name, entry.source.model_string),
            "parent": entry.source.names[0] if name in loras else None,
            "max_model_len": None if loaded is None else loaded.model.max_model_len,
            "permission": [permission],
        })  # fmt: skip
    return {"object": "list", "data": cards}
