"""The routes of vLLM's render server: what they answer, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.server.api import ApiOptions, Reply, answer_of, find_api
from mmroute.server.api_errors import ApiError
from mmroute.server.engines.vllm.model import LoadedModel
from mmroute.server.engines.vllm.routes import ROUTES

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
    return answer_of(find_api("vllm"), model, path, body, options)
