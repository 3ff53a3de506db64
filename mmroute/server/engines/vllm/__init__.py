"""The routes of vLLM's render server: what they answer, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mmroute.server.api import ApiOptions, Reply, read
from mmroute.server.api_errors import ApiError
from mmroute.server.engines.vllm.model import Call, LoadedModel
from mmroute.server.engines.vllm.routes import API, ROUTES

__all__ = ["ROUTES", "ApiError", "ApiOptions", "LoadedModel", "Reply", "answer_body"]

_DEFAULTS: Final = ApiOptions()


def answer_body(
    model: LoadedModel, path: str, body: Mapping[str, Any], options: ApiOptions = _DEFAULTS
) -> Reply:
    """The answer of a route to a client's body, as ``mmroute serve`` gives it.

    Args:
        model: the model to ask.
        path: the route: one of `ROUTES`, such as ``/v1/messages/render``.
        body: the JSON that a client sent. It is not changed.
        options: the options that the operator set.

    Returns:
        The reply. Its body has no arrays, so `json` writes it.

    Raises:
        ApiError: the engine refuses the request, or it has no exact answer.
        KeyError: there is no such route.
        ModelError: `unknown_backend`: the model's engine is not vLLM.

    >>> from mmroute import Normalizer
    >>> from mmroute.server.engines.vllm import LoadedModel, answer_body
    >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
    >>> model = LoadedModel.of(normalizer)
    >>> body = {"model": "pixtral", "input": "Hi"}
    >>> answer_body(model, "/v1/responses/render", body).routings[0].token_ids.tolist()
    [1, 3, 37133, 4]
    """
    route, engine = ROUTES[path], model.model.engine
    schema = API.schema(path, engine.release.backend, model.model.settings)
    copied = {**body} if isinstance(body, Mapping) else body
    reply = route.answer_to(read(schema, copied), Call(model, options))
    return reply._replace(body=_plain(reply.body))


def _plain(value: Any) -> Any:
    """A value of which `json` writes all, with lists in the place of arrays."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
