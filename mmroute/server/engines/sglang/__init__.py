"""The routes for SGLang: what they answer, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.server.api import ApiOptions, Reply, answer_of, find_api
from mmroute.server.api_errors import ApiError
from mmroute.server.engines.sglang.model import SglangModel
from mmroute.server.engines.sglang.routes import ROUTES

__all__ = ["ROUTES", "ApiError", "ApiOptions", "Reply", "SglangModel", "answer_body"]

_DEFAULTS: Final = ApiOptions()


def answer_body(
    model: SglangModel, path: str, body: Mapping[str, Any], options: ApiOptions = _DEFAULTS
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
    """
    return answer_of(find_api("sglang"), model, path, body, options)
