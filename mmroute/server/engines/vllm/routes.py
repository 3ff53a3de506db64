"""The routes of vLLM's render server that have a body, and some of mmroute's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mmroute.engine import EngineSettings
from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.completion import CompletionRequest
from mmroute.engines.vllm.bodies.schemas import release_of, schema_of
from mmroute.engines.vllm.bodies.validation import Schema
from mmroute.normalizer import Normalizer
from mmroute.server.api import Cost, Route
from mmroute.server.cost import cost_of
from mmroute.server.engines.vllm.bodies.messages import (
    AnthropicCountTokensRequest,
    AnthropicMessagesRequest,
)
from mmroute.server.engines.vllm.bodies.responses import ResponsesRequest
from mmroute.server.engines.vllm.bodies.tokenization import DetokenizeRequest, TokenizeRequest
from mmroute.server.engines.vllm.chat_completion import answer_chat
from mmroute.server.engines.vllm.completion import answer_completion
from mmroute.server.engines.vllm.derender import DerenderRequest, derender
from mmroute.server.engines.vllm.forward import ForwardRequest, answer_forward
from mmroute.server.engines.vllm.messages import answer_messages, count_messages
from mmroute.server.engines.vllm.model import LoadedModel
from mmroute.server.engines.vllm.responses import (
    answer_responses,
    count_responses,
)
from mmroute.server.engines.vllm.tokenization import detokenize, tokenize

ROUTES: Final[Mapping[str, Route]] = {
    "/tokenize": Route("Token IDs of a text or a chat", TokenizeRequest, tokenize),
    "/detokenize": Route("The text of token IDs", DetokenizeRequest, detokenize),
    "/v1/chat/completions/render": Route(
        "The prompt of a chat", ChatCompletionRequest, answer_chat
    ),
    "/v1/chat/completions/forward": Route(
        "The body to forward to an engine", ForwardRequest, answer_forward
    ),
    "/v1/completions/render": Route(
        "The prompts of a completion", CompletionRequest, answer_completion
    ),
    "/v1/messages/render": Route(
        "The prompt of a request of the Anthropic Messages API",
        AnthropicMessagesRequest,
        answer_messages,
    ),
    "/v1/responses/render": Route(
        "The prompt of a request of the OpenAI Responses API", ResponsesRequest, answer_responses
    ),
    "/v1/messages/count_tokens": Route(
        "The tokens of a request of the Anthropic Messages API",
        AnthropicCountTokensRequest,
        count_messages,
    ),
    "/v1/responses/input_tokens": Route(
        "The tokens of a request of the OpenAI Responses API", ResponsesRequest, count_responses
    ),
    "/v1/chat/completions/derender": Route(
        "The answers to a chat, by the fallback", DerenderRequest, derender
    ),
    "/v1/completions/derender": Route(
        "The answers to the prompts of a completion, by the fallback", DerenderRequest, derender
    ),
}

OWN_ROUTES: Final = {
    "/v1/chat/completions/forward": "/v1/chat/completions/render",
    "/v1/responses/input_tokens": "/v1/responses/render",
}
"""Path of a route that vLLM does not have -> vLLM's path whose requests have the same fields."""


@dataclass(frozen=True, slots=True)
class VllmApi:
    """vLLM's API."""

    routes: Mapping[str, Route]
    own: Mapping[str, str]
    first_requests: Mapping[str, Any]

    def schema(self, path: str, backend: str, settings: EngineSettings) -> Schema[Any]:
        known = self.own.get(path, path)
        body = self.routes[path].request
        return schema_of(known, release_of(backend), settings.strict_json, body)

    def cost(self, path: str, body: object, size: int) -> Cost:
        return cost_of(path, body, size)

    def load(self, normalizer: Normalizer, name: str) -> LoadedModel:
        return LoadedModel.of(normalizer, name)


API: Final = VllmApi(
    ROUTES,
    OWN_ROUTES,
    {
        "/tokenize": {"prompt": "a b"},
        "/v1/chat/completions/render": {"messages": [{"role": "user", "content": "a b"}]},
    },
)
