"""Routes by which an operator adds and removes models while the server runs.

They are there only if an admin key is set: whoever may name a model directory runs its chat
template, which is a program.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mmroute.errors import shown
from mmroute.server.endpoints import Endpoints, error_response, json_response
from mmroute.server.errors import ApiError, invalid_body
from mmroute.server.handling import HandlerContext, HandlerResult
from mmroute.server.models import Entry, Models, ModelSource, ModelStatus, NameTakenError

__all__ = ["ADMIN_PREFIX", "AddModelRequest", "admin_routes"]

ADMIN_PREFIX: Final = "/admin"
_MODELS: Final = f"{ADMIN_PREFIX}/models"
_ONE_MODEL: Final = f"{_MODELS}/{{name:path}}"


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
        Route(_MODELS, endpoints.of(TypeAdapter(AddModelRequest), _add), methods=["POST"]),
        Route(_ONE_MODEL, show, methods=["GET"]),
        Route(_ONE_MODEL, remove, methods=["DELETE"]),
    ]


class AddModelRequest(BaseModel):
    """Body of ``POST /admin/models``."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1)
    names: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    model_id: str | None = None
    revision: str | None = None
    backend: str | None = None


def _add(request: AddModelRequest, context: HandlerContext) -> HandlerResult:
    """Begin to load a model; 202 while that goes on. Asked again, it only says how far it is.

    Raises:
        ApiError: 400; 409: another model has one of the names.
    """
    names = tuple(request.names or [request.model])
    if len(set(names)) < len(names):
        raise invalid_body(f"a model needs different names; found {shown(names)}", "body.names")
    source = ModelSource(
        request.model,
        names,
        model_id=request.model_id,
        revision=request.revision,
        backend=request.backend or context.models.backend.name,
    )
    try:
        entry = context.models.add(source)
    except NameTakenError as error:
        raise ApiError(HTTPStatus.CONFLICT, "ConflictError", str(error), param="names") from None
    loading = entry.status is ModelStatus.LOADING
    return HandlerResult(_shown(entry), status=HTTPStatus.ACCEPTED if loading else HTTPStatus.OK)


def _shown(entry: Entry) -> dict[str, Any]:
    source, loaded = entry.source, entry.loaded
    return {
        "names": source.names,
        "model": source.model,
        "model_id": source.model_id or source.model,
        "revision": source.revision,
        "backend": source.backend,
        "status": entry.status.value,
        "error": entry.error or None,
        "max_model_len": None if loaded is None else loaded.max_model_len,
    }
