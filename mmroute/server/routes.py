"""The routes that have a body: what they take, what they answer, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mmroute.engines.vllm.api.answers import DetokenizeResponse, GenerateRequest, TokenizeResponse
from mmroute.engines.vllm.api.derender import DerenderRequest, derender
from mmroute.engines.vllm.api.messages_protocol import AnthropicMessagesRequest
from mmroute.engines.vllm.api.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from mmroute.engines.vllm.api.render import (
    render_chat,
    render_completion,
    render_messages,
    render_responses,
)
from mmroute.engines.vllm.api.responses_protocol import ResponsesRequest
from mmroute.engines.vllm.api.tokenization import detokenize, tokenize
from mmroute.server.endpoints import Handler


class Posted(NamedTuple):
    """A route that has a body: what it is for, what it takes and gives, and what answers it."""

    summary: str
    request: Any
    answer: Any
    handler: Handler[Any]


POSTED: Final[Mapping[str, Posted]] = {
    "/tokenize": Posted(
        "Token IDs of a text or a chat", TokenizeRequest, TokenizeResponse, tokenize
    ),
    "/detokenize": Posted(
        "The text of token IDs", DetokenizeRequest, DetokenizeResponse, detokenize
    ),
    "/v1/chat/completions/render": Posted(
        "The prompt of a chat", ChatCompletionRequest, GenerateRequest, render_chat
    ),
    "/v1/completions/render": Posted(
        "The prompts of a completion", CompletionRequest, list[GenerateRequest], render_completion
    ),
    "/v1/messages/render": Posted(
        "The prompt of a request of the Anthropic Messages API", AnthropicMessagesRequest,
        GenerateRequest, render_messages,
    ),
    "/v1/responses/render": Posted(
        "The prompt of a request of the OpenAI Responses API", ResponsesRequest,
        GenerateRequest, render_responses,
    ),
    "/v1/chat/completions/derender": Posted(
        "The answers to a chat, by the fallback", DerenderRequest, dict[str, Any], derender
    ),
    "/v1/completions/derender": Posted(
        "The answers to the prompts of a completion, by the fallback", DerenderRequest,
        dict[str, Any], derender,
    ),
}  # fmt: skip
