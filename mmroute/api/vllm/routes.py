"""The routes that have a body, with the classes of their requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import create_model

from mmroute.api.vllm.answers import (
    AnthropicCountTokensResponse,
    DetokenizeResponse,
    GenerateRequest,
    InputTokens,
    TokenizeResponse,
)
from mmroute.api.vllm.call import ApiRequest
from mmroute.api.vllm.chat_completion import ChatCompletionRequest
from mmroute.api.vllm.completion import CompletionRequest
from mmroute.api.vllm.derender import DerenderRequest
from mmroute.api.vllm.forward import ForwardRequest
from mmroute.api.vllm.messages import AnthropicCountTokensRequest, AnthropicMessagesRequest
from mmroute.api.vllm.releases import OWN_ROUTES, Release, differences
from mmroute.api.vllm.responses import InputTokensRequest, ResponsesRequest
from mmroute.api.vllm.rust_fields import RUST_FIELDS
from mmroute.api.vllm.tokenization import DetokenizeRequest, TokenizeRequest
from mmroute.api.vllm.validation import Schema
from mmroute.engines.frontends import Frontend


class Route(NamedTuple):
    """A route that has a body: a summary, and the classes of its requests and answers."""

    summary: str
    request: Any
    answer: Any


ROUTES: Final[Mapping[str, Route]] = {
    "/tokenize": Route("Token IDs of a text or a chat", TokenizeRequest, TokenizeResponse),
    "/detokenize": Route("The text of token IDs", DetokenizeRequest, DetokenizeResponse),
    "/v1/chat/completions/render": Route(
        "The prompt of a chat", ChatCompletionRequest, GenerateRequest
    ),
    "/v1/chat/completions/forward": Route(
        "The body to forward to an engine", ForwardRequest, dict[str, Any]
    ),
    "/v1/completions/render": Route(
        "The prompts of a completion", CompletionRequest, list[GenerateRequest]
    ),
    "/v1/messages/render": Route(
        "The prompt of a request of the Anthropic Messages API", AnthropicMessagesRequest,
        GenerateRequest,
    ),
    "/v1/responses/render": Route(
        "The prompt of a request of the OpenAI Responses API", ResponsesRequest, GenerateRequest
    ),
    "/v1/messages/count_tokens": Route(
        "The tokens of a request of the Anthropic Messages API", AnthropicCountTokensRequest,
        AnthropicCountTokensResponse,
    ),
    "/v1/responses/input_tokens": Route(
        "The tokens of a request of the OpenAI Responses API", InputTokensRequest, InputTokens
    ),
    "/v1/chat/completions/derender": Route(
        "The answers to a chat, by the fallback", DerenderRequest, dict[str, Any]
    ),
    "/v1/completions/derender": Route(
        "The answers to the prompts of a completion, by the fallback", DerenderRequest,
        dict[str, Any],
    ),
}  # fmt: skip

_CHECKS_SALTS: Final = (0, 33)


@cache
def schema_of(
    path: str, release: Release, frontend: Frontend = Frontend.PYTHON
) -> Schema[ApiRequest]:
    """The schema for the bodies of a route.

    Args:
        path: a key of `ROUTES`.
        release: the release of vLLM whose fields a body may have.
        frontend: the frontend whose types these fields have.
    """
    kind = ROUTES[path].request
    unknown, refused, changed = differences(path, release)
    lenient = frozenset[str]()
    if frontend is Frontend.RUST:
        # An empty text may have a token; earlier releases look at no character of a salt.
        lenient = frozenset({"prompt"} if release >= _CHECKS_SALTS else {"prompt", "cache_salt"})
        for name, given in RUST_FIELDS.get(OWN_ROUTES.get(path, path), {}).items():
            changed[name] = (given, kind.model_fields[name].default)
    if changed:
        kind = create_model(kind.__name__, __base__=kind, **changed)
    return Schema(kind, unknown, refused, lenient)
