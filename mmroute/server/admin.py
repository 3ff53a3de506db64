"""Routes by which an operator adds and removes models while the server runs.

They are there only if an admin key is set: a model directory that is named here brings a chat
template, which is a program and is run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mmroute.engines.vllm.api.errors import ApiError, invalid_body
from mmroute.engines.vllm.api.validation import Schema
from mmroute.errors import quoted
from mmroute.server.changes import Change
from mmroute.server.endpoints import Endpoints
from mmroute.server.exchange import Exchange, Route, readable
from mmroute.server.front.http import Response, error_response, json_response
from mmroute.server.handling import HandlerContext, HandlerResult
from mmroute.server.loading import ModelSource
from mmroute.server.models import Entry, Models, ModelStatus, NameTakenError

_MODELS: Final = "/admin/models"
_ONE_MODEL: Final = f"{_MODELS}/"


class AdminRoutes:
    """``GET`` and ``POST /admin/models``; ``GET``, ``PUT`` and ``DELETE /admin/models/NAME``."""

    def __init__(self, models: Models, endpoints: Endpoints) -> None:
        self._models = models

        def remove(name: str) -> Entry:
            return models.change(Change("remove", name))

        add = endpoints.of(Schema(AddModelRequest), _add)
        replace = endpoints.of(Schema(AddModelRequest), _replace)
        self._all = {
            **readable(Route(_MODELS, self._show_all)),
            "POST": Route(_MODELS, add, takes_body=True),
        }
        self._one = {
            **readable(Route(_ONE_MODEL, functools.partial(self._of_one, models.entry))),
            "PUT": Route(_ONE_MODEL, replace, takes_body=True),
            "DELETE": Route(_ONE_MODEL, functools.partial(self._of_one, remove)),
        }

    def methods(self, path: str) -> Mapping[str, Route] | None:
        """What each method of a path is answered by; None if it is no path of these."""
        if path == _MODELS:
            return self._all
        return self._one if path.startswith(_ONE_MODEL) else None

    def _show_all(self, _: Exchange) -> Response:
        return json_response({"data": [_shown(entry) for entry in self._models.entries()]})

    def _of_one(self, act: Callable[[str], Entry], exchange: Exchange) -> Response:
        try:
            return json_response(_shown(act(exchange.head.path.removeprefix(_ONE_MODEL))))
        except ApiError as error:
            return error_response(error)


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
    source = _source(request, tuple(request.names or [request.model]), context)
    entry = _changed(Change("add", source=source), context)
    loading = entry.status is ModelStatus.LOADING
    return HandlerResult(_shown(entry), status=HTTPStatus.ACCEPTED if loading else HTTPStatus.OK)


def _replace(request: AddModelRequest, context: HandlerContext) -> HandlerResult:
    """Begin to load what takes the place of a model, all at once when it is loaded.

    Raises:
        ApiError: 400, 404; 409: a third model has one of the names.
    """
    name = context.path.removeprefix(_ONE_MODEL)
    names = tuple(request.names or context.models.entry(name).source.names)
    if name not in names:
        raise invalid_body(f"names must hold {quoted(name)}", "body.names")
    entry = _changed(Change("replace", name, _source(request, names, context)), context)
    return HandlerResult(_shown(entry), status=HTTPStatus.ACCEPTED)


def _source(
    request: AddModelRequest, names: tuple[str, ...], context: HandlerContext
) -> ModelSource:
    if len(set(names)) < len(names):
        raise invalid_body(f"a model needs different names; found {quoted(names)}", "body.names")
    return ModelSource(
        request.model,
        names,
        model_id=request.model_id,
        revision=request.revision,
        backend=request.backend or context.models.backend_name,
    )


def _changed(change: Change, context: HandlerContext) -> Entry:
    try:
        return context.models.change(change)
    except NameTakenError as error:
        taken = ApiError(HTTPStatus.CONFLICT, "ConflictError", str(error), param="names")
        raise taken from None


def _shown(entry: Entry) -> dict[str, Any]:
    source, loaded = entry.source, entry.loaded
    shown: dict[str, Any] = {
        "names": source.names,
        "model": source.model,
        "model_id": source.model_string,
        "revision": source.revision,
        "backend": source.backend,
        "status": entry.status.value,
        "error": entry.error or None,
        "max_model_len": None if loaded is None else loaded.max_model_len,
    }
    if entry.replacement is not None:
        shown["replacement"] = _shown(entry.replacement)
    return shown
