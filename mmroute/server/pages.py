"""What is read without a body: health, versions, models, metrics, the OpenAPI document."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_LATEST

from mmroute.health.tested_versions import version_of
from mmroute.server.errors import ApiError
from mmroute.server.exchange import Exchange
from mmroute.server.http import Response, error_response, json_response
from mmroute.server.metrics import Metrics
from mmroute.server.models import Models, ModelStatus
from mmroute.server.openapi import openapi
from mmroute.server.settings import ServerSettings

if TYPE_CHECKING:
    from mmroute.server.service import Drain

__all__ = ["pages"]


def pages(
    models: Models, settings: ServerSettings, metrics: Metrics, drain: Drain
) -> Mapping[str, Callable[[Exchange], Response]]:
    """What each path is answered with."""
    matched = models.backend
    version = {
        "version": matched.version,
        "engine": matched.name,
        "mmroute": version_of("mmroute"),
    }

    def show_health(_: Exchange) -> Response:
        return Response(200 if models.ready and not drain.begun else 503)

    def show_version(_: Exchange) -> Response:
        return json_response(version)

    def show_models(_: Exchange) -> Response:
        return json_response(_model_list(models))

    def show_metrics(_: Exchange) -> Response:
        return Response(200, metrics.page(), media_type=CONTENT_TYPE_LATEST)

    def show_openapi(_: Exchange) -> Response:
        return json_response(openapi(settings))

    def show_tokenizer(exchange: Exchange) -> Response:
        (name, *_) = parse_qs(exchange.head.query).get("model", [None])
        try:
            return json_response(models.find(name).tokenizer_info)
        except ApiError as error:
            return error_response(error)

    found: dict[str, Callable[[Exchange], Response]] = {
        "/health": show_health,
        "/version": show_version,
        "/v1/models": show_models,
        "/metrics": show_metrics,
        "/openapi.json": show_openapi,
    }
    if settings.tokenizer_info:
        found["/tokenizer_info"] = show_tokenizer
    return found


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
