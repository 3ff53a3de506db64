"""Answers to the Anthropic Messages API: ``/v1/messages/render``, ``/v1/messages/count_tokens``."""

from __future__ import annotations

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.server.api import Reply
from mmroute.server.engines.vllm.bodies.messages import (
    AnthropicCountTokensRequest,
    AnthropicMessagesRequest,
)
from mmroute.server.engines.vllm.chat_completion import answer_chat, chat_routing, check_chat
from mmroute.server.engines.vllm.model import Call


def answer_messages(request: AnthropicMessagesRequest, call: Call) -> Reply:
    """The answer of ``/v1/messages/render``."""
    return answer_chat(_chat(request, call), call)


def count_messages(request: AnthropicCountTokensRequest, call: Call) -> Reply:
    """The answer of ``/v1/messages/count_tokens``."""
    chat = _chat(request, call)
    check_chat(chat, call)
    routing = chat_routing(chat, call)
    count = len(routing.token_ids)
    kept = {"original_input_tokens": count}  # before context management, which vLLM does not do
    return Reply({"input_tokens": count, "context_management": kept}, [routing])


def _chat(
    request: AnthropicMessagesRequest | AnthropicCountTokensRequest, call: Call
) -> ChatCompletionRequest:
    call.model.chats.check_served("/v1/messages")
    return request.to_chat(call.model.messages_rules())
