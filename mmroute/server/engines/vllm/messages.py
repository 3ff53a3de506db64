"""Answers to the Anthropic Messages API: ``/v1/messages/render``, ``/v1/messages/count_tokens``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.server.api import Cost, Reply
from mmroute.server.engines.vllm.bodies.messages import (
    AnthropicCountTokensRequest,
    AnthropicMessagesRequest,
)
from mmroute.server.engines.vllm.bodies.messages_protocol import AnthropicMessage
from mmroute.server.engines.vllm.chat_completion import answer_chat, chat_routing, check_chat
from mmroute.server.engines.vllm.cost import cost_beside_files, typed_parts
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


def cost_of_messages(
    request: AnthropicMessagesRequest | AnthropicCountTokensRequest, size: int
) -> Cost:
    """The cost of a request."""
    sources = list(_sources(request.messages))
    urls = [source.get("url") for source in sources if source.get("type") == "url"]
    base64 = [source.get("data") for source in sources if source.get("type") != "url"]
    return cost_beside_files(size, urls, base64)


def _sources(messages: Sequence[AnthropicMessage]) -> Iterator[dict[str, Any]]:
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            found = [block.source] if block.type == "image" else []
            if block.type == "tool_result" and message.role == "user":
                found = [item.get("source") for item in typed_parts(block.content, "image")]
            yield from (source for source in found if isinstance(source, dict))
