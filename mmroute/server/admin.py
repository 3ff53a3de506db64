"""Routes by which an operator adds and removes models while the server runs.

They are there only if an admin key is set: whoever may name a model directory runs its chat
template, which is a program.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mmroute.errors import did_you_mean, shown
from mmroute.server.endpoints import Endpoints, error_response, json_response
from mmroute.server.errors import ApiError, wrong_field
from mmroute.server.fields import Body, list_of, read, read_nullable, text
from mmroute.server.models import Entry, Models, ModelSource, ModelStatus, NameTakenError
from mmroute.server.work import Answer, Work

__all__ = ["ADMIN_PREFIX", "admin_routes"]

ADMIN_PREFIX: Final = "/admin"
_MODELS: Final = f"{ADMIN_PREFIX}/models"
_ONE_MODEL: Final = f"{_MODELS}/{{name:path}}"
_FIELDS: Final = ("model", "names", "model_id", "revision", "backend")


def admin_routes(models: Models, endpoints: Endpoints) -> list[Route]:
    """``GET`` and ``POST /admin/models``, ``GET`` and ``DELETE /admin/models/NAME``."""

    async def show_all(_: Request) -> Response:
        return json_response({"data": [_shown(entry) for entry in models.entries()]})

    async def show(request: Request) -> Response:
        try:
            return json_response(_shown(models.entry(request.path_params["name"])))
        except ApiError as error:
            return error_response(error)

    async def remove(request: Request) -> Response:
        try:
            return json_response(_shown(models.remove(request.path_params["name"])))
        except ApiError as error:
            return error_response(error)

    return [
        Route(_MODELS, show_all, methods=["GET"]),
        Route(_MODELS, endpoints.of(_add), methods=["POST"]),
        Route(_ONE_MODEL, show, methods=["GET"]),
        Route(_ONE_MODEL, remove, methods=["DELETE"]),
    ]


def _add(body: Body, work: Work) -> Answer:
    """Begin to load a model; 202 while that goes on. Asked again, it only says how far it is.

    Raises:
        ApiError: 400; 409: another model has one of the names.
    """
    unknown = sorted(body.keys() - set(_FIELDS))
    if unknown:
        hint = did_you_mean(unknown[0], _FIELDS)
        raise wrong_field(
            f"body.{unknown[0]}", f"there is no such field; known are {', '.join(_FIELDS)}{hint}"
        )
    if "model" not in body:
        raise wrong_field("body.model", "Field required")
    model = text(body["model"], "body.model")
    names = tuple(read(body, "names", list_of(text), [model]))
    if not model or not names or not all(names) or len(set(names)) < len(names):
        raise wrong_field(
            "body.names", f"a model needs names, all different, none empty; found {shown(names)}"
        )
    source = ModelSource(
        model,
        names,
        model_id=read_nullable(body, "model_id", text),
        revision=read_nullable(body, "revision", text),
        backend=read(body, "backend", text, work.models.backend.name),
    )
    try:
        entry = work.models.add(source)
    except NameTakenError as error:
        raise ApiError(HTTPStatus.CONFLICT, "ConflictError", str(error), param="names") from None
    loading = entry.status is ModelStatus.LOADING
    return Answer(_shown(entry), status=HTTPStatus.ACCEPTED if loading else HTTPStatus.OK)


def _shown(entry: Entry) -> dict[str, Any]:
    source, served = entry.source, entry.served
    return {
        "names": source.names,
        "model": source.model,
        "model_id": source.model_id or source.model,
        "revision": source.revision,
        "backend": source.backend,
        "status": entry.status.value,
        "error": entry.error or None,
        "max_model_len": None if served is None else served.max_model_len,
    }
