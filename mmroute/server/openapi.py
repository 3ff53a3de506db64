"""The OpenAPI document of the server, generated from the types that it reads and writes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter

from mmroute.answering.hash_forms import HashForm
from mmroute.hashing import Algorithm
from mmroute.health.tested_versions import version_of
from mmroute.server.admin import AddModelRequest
from mmroute.server.api import routes
from mmroute.server.api_errors import ErrorResponse
from mmroute.server.settings import AnswerFields, ServerSettings

_Schema = dict[str, Any]
_JSON: Final = "application/json"
_READ: Final = {
    "/v1/models": "Every served name",
    "/version": "The version of vLLM that is matched, and of mmroute",
    "/health": "200 when every model is loaded and checked, else 503",
    "/ping": "The same",
    "/livez": "200 as long as the process answers",
    "/readyz": "As /health, with the status of each model; ?model=NAME asks for one",
    "/load": "The number of requests that are being answered",
    "/kv_event_sources": "Empty: only an engine publishes events",
    "/metrics": "Prometheus metrics",
    "/openapi.json": "This document",
}
_READINESS: Final = ("/health", "/ping", "/readyz")
_INEXACT: Final = (
    "vLLM may answer this request, but there is no exact answer (mmroute docs reasons)"
)
_ERRORS: Final = {
    **{
        str(status.value): status.phrase
        for status in (
            HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.INTERNAL_SERVER_ERROR,
            HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE,
        )
    },
    "422": _INEXACT,
}  # fmt: skip
_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": schema, "description": description}
    for name, schema, description in (
        (
            "block_size", {"type": "integer", "minimum": 1, "maximum": 1 << 20},
            "answer with block hashes as well: the engine's block size, in tokens",
        ),
        ("algorithm", {"enum": [*Algorithm]}, "the engine's --prefix-caching-hash-algo"),
        (
            "hashes", {"enum": [*HashForm]},
            "hex digits, integers as in the engine's events, or Dynamo's hashes",
        ),
        (
            "fields", {"enum": [*AnswerFields]},
            "tokens: answer with `token_ids`, `features` and hashes only",
        ),
    )
]  # fmt: skip
_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def openapi(settings: ServerSettings) -> _Schema:
    """Make the document."""
    types: dict[str, Any] = {"error": ErrorResponse, "add": AddModelRequest}
    for path, posted in routes().items():
        types |= {f"{path} request": posted.request, f"{path} answer": posted.answer}
    schemas, components = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(kind)) for name, kind in types.items()],
        ref_template="#/components/schemas/{model}",
    )
    schema_of_type = {name: schema for (name, _), schema in schemas.items()}
    errors = {
        status: {"description": text, "content": _json(schema_of_type["error"])}
        for status, text in _ERRORS.items()
    }
    paths: _Schema = {path: {"get": _operation(summary)} for path, summary in _READ.items()}
    for path in _READINESS:
        paths[path]["get"]["responses"]["503"] = {"description": "a model is not ready"}
    for path, posted in routes().items():
        operation = _operation(
            posted.summary, schema_of_type[f"{path} request"], schema_of_type[f"{path} answer"]
        )
        operation["responses"] |= errors
        if path.endswith("/render"):
            operation["parameters"] = _PARAMETERS
        paths[path] = {"post": operation}
    if settings.tokenizer_info:
        paths["/tokenizer_info"] = {"get": _operation("The tokenizer's configuration")}
    if settings.admin_key is not None:
        paths |= _admin_paths(schema_of_type["add"], errors)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "mmroute",
            "version": version_of("mmroute"),
            "description": "vLLM's tokenize and render endpoints, answered without pixels",
        },
        "paths": paths,
        "components": {"schemas": components["$defs"]},
    }
    if settings.api_keys:
        _guard(document, "/v1")
    if settings.admin_key is not None:
        _guard(document, "/admin")
    return document


def _admin_paths(add: _Schema, errors: _Schema) -> _Schema:
    added = _operation("Add a model", add)
    replaced = _operation("Put another model in its place, once that is loaded", add)
    for operation in (added, replaced):
        operation["responses"] |= {
            **errors,
            "202": {"description": "it is being loaded"},
            "409": {"description": "another model has one of the names"},
        }
    shown, removed = _operation("The status of a model"), _operation("Remove a model")
    for operation in (shown, removed):
        operation["responses"]["404"] = errors["404"]
    return {
        "/admin/models": {"get": _operation("Every model with its status"), "post": added},
        "/admin/models/{name}": {
            "parameters": [_NAME], "get": shown, "put": replaced, "delete": removed,
        },
    }  # fmt: skip


def _operation(
    summary: str, request: _Schema | None = None, answer: _Schema | None = None
) -> _Schema:
    response: _Schema = {"description": "OK"}
    if answer is not None:
        response["content"] = _json(answer)
    operation: _Schema = {"summary": summary, "responses": {"200": response}}
    if request is not None:
        operation["requestBody"] = {"required": True, "content": _json(request)}
    return operation


def _json(schema: _Schema) -> _Schema:
    return {_JSON: {"schema": schema}}


def _guard(document: _Schema, beginning: str) -> None:
    """Declare the API key of the operations whose paths begin with `beginning`."""
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, item in document["paths"].items():
        for name, operation in item.items():
            if path.startswith(beginning) and name != "parameters":
                operation["security"] = [{"key": []}]
                operation["responses"]["401"] = {"description": "no API key, or another one"}
