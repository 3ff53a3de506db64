"""Routes by which an operator adds and removes models while the server runs.

They exist only if an admin key is set. A model directory has a chat template, which is a program,
and the server runs it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mmroute.engine import EngineSettings
from mmroute.errors import ModelError, quoted
from mmroute.server.api import Cost
from mmroute.server.api_errors import ApiError, invalid_body
from mmroute.server.endpoints import Endpoints, Job
from mmroute.server.entry import Entry, ModelStatus
from mmroute.server.exchange import Exchange, Route, readable
from mmroute.server.front.http import Response, json_response
from mmroute.server.loading import ModelSource
from mmroute.server.models import Models

_MODELS: Final = "/admin/models"
_ONE_MODEL: Final = f"{_MODELS}/"


class AddModelRequest(BaseModel):
    """Body of ``POST /admin/models``, and of ``PUT /admin/models/NAME``."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1)
    names: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    model_id: str | None = None
    engine_args: str | None = None
    revision: str | None = None
    backend: str | None = None


class AdminRoutes:
    """``GET`` and ``POST /admin/models``; ``GET``, ``PUT`` and ``DELETE /admin/models/NAME``."""

    def __init__(self, models: Models, endpoints: Endpoints) -> None:
        self._models = models

        add = endpoints.of(functools.partial(self._read, self._add))
        replace = endpoints.of(functools.partial(self._read, self._replace))
        self._all = {
            **readable(
                Route(_MODELS, lambda _: json_response({"data": [*map(_shown, models.entries())]}))
            ),
            "POST": Route(_MODELS, add, takes_body=True),
        }
        self._one = {
            **readable(Route(_ONE_MODEL, functools.partial(self._of_one, models.entry))),
            "PUT": Route(_ONE_MODEL, replace, takes_body=True),
            "DELETE": Route(_ONE_MODEL, functools.partial(self._of_one, self._remove)),
        }

    def methods(self, path: str) -> Mapping[str, Route] | None:
        """The route for each method of a path; None for a path that is not one of these."""
        if path == _MODELS:
            return self._all
        return self._one if path.startswith(_ONE_MODEL) else None

    def _read(
        self,
        act: Callable[[AddModelRequest, str], Response],
        value: Any,
        exchange: Exchange,
        _: object,
    ) -> Job:
        try:
            request = AddModelRequest.model_validate(value)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            place = ".".join(["body", *map(str, wrong["loc"])])
            raise invalid_body(f"{place}: {wrong['msg']}", place) from None
        return Cost(), functools.partial(act, request, exchange.head.path)

    def _of_one(self, act: Callable[[str], Entry], exchange: Exchange) -> Response:
        return json_response(_shown(act(exchange.head.path.removeprefix(_ONE_MODEL))))

    def _add(self, request: AddModelRequest, _path: str) -> Response:
        """Begin to load a model, and answer 202 until it is loaded.

        A repeated request loads nothing again; its answer has the status of the loading.
        """
        names = tuple(request.names or [request.model])
        blank = ModelSource(request.model, names, backend=self._models.backend_name)
        entry = self._models.add(_source(request, blank))
        loading = entry.status is ModelStatus.LOADING
        return json_response(_shown(entry), HTTPStatus.ACCEPTED if loading else HTTPStatus.OK)

    def _replace(self, request: AddModelRequest, path: str) -> Response:
        """Begin to load a model that replaces another one, in one step, once it is loaded.

        What the body leaves out stays, because other options of the engine give other hashes.
        """
        name = path.removeprefix(_ONE_MODEL)
        source = _source(request, self._models.entry(name).source)
        if name not in source.names:
            raise invalid_body(f"names must hold {quoted(name)}", "body.names")
        return json_response(_shown(self._models.replace(name, source)), HTTPStatus.ACCEPTED)

    def _remove(self, name: str) -> Entry:
        entry = self._models.entry(name)
        if name not in entry.source.names:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "NotFoundError",
                f"{quoted(name)} is a LoRA adapter of {quoted(entry.source.names[0])}, which alone "
                "can be removed, with its adapters",
                param="model",
            )
        return self._models.remove(name)


def _source(request: AddModelRequest, before: ModelSource) -> ModelSource:
    """The source that a body asks for; what it leaves out is as `before`."""
    names = tuple(request.names or before.names)
    if len(set(names)) < len(names):
        raise invalid_body(f"a model needs different names; found {quoted(names)}", "body.names")
    model_id, settings = request.model_id or before.model_id, before.engine_settings
    if request.engine_args is not None:
        model_id = request.model_id  # the command line has the engine's model string
        try:
            settings = EngineSettings.from_args(request.engine_args)
        except ModelError as error:
            raise invalid_body(str(error), "body.engine_args") from None
    return dataclasses.replace(
        before,
        model=request.model,
        names=names,
        model_id=model_id,
        # A branch or commit is one of its repository.
        revision=request.revision or (before.revision if request.model == before.model else None),
        backend=request.backend or before.backend,
        engine_settings=settings,
    )


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
        "max_model_len": None if loaded is None else loaded.model.max_model_len,
    }
    if entry.replacement is not None:
        shown["replacement"] = _shown(entry.replacement)
    return shown
