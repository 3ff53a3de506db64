"""Answers to the OpenAI Responses API: ``/v1/responses/render``, ``/v1/responses/input_tokens``.

vLLM has no route that counts; the answer is that of OpenAI's own server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.errors import require, unsupported_field
from mmroute.engines.vllm.chats import RefusedChat
from mmroute.engines.vllm.tools import MISTRAL_ID_LENGTH
from mmroute.errors import Reason
from mmroute.server.api import Reply
from mmroute.server.api_errors import of_reason
from mmroute.server.engines.vllm.bodies.responses import ResponsesRequest
from mmroute.server.engines.vllm.bodies.responses_chat import (
    has_long_call_ids,
    messages_of,
    tools_of,
)
from mmroute.server.engines.vllm.chat_completion import (
    chat_answer,
    describe_to_parser,
    template_kwargs,
)
from mmroute.server.engines.vllm.model import Call
from mmroute.server.engines.vllm.rendering import rendered, route_ids
from mmroute.server.engines.vllm.truncation import truncated_ids

if TYPE_CHECKING:
    from mmroute.engines.vllm.harmony_chat import HarmonyChat


def answer_responses(request: ResponsesRequest, call: Call) -> Reply:
    """The answer of ``/v1/responses/render``."""
    model, chat = call.model, request.options()
    model.chats.check_served("/v1/responses")
    request_id = request.request_id
    if "request_id" not in request.model_fields_set:
        request_id = f"resp_{call.own_id()}"
    if model.chats.harmony:
        return _answer_conversation(request, chat, call, request_id)
    chat.messages = messages_of(request.instructions, request.input)
    chat.tools = list(tools_of(request.tools)) if request.tools else None
    model.chats.check_tools(chat.tools, request.tool_choice)
    in_parts = any(isinstance(m.get("content"), list) and m["content"] for m in chat.messages)
    require(
        not in_parts or model.chats.templated,
        "mistral-common takes no `input_text` and no `input_image`; send texts, or a chat.",
    )
    if not model.chats.templated and has_long_call_ids(chat.messages):
        raise unsupported_field(
            f"input: a call's ID has more than {MISTRAL_ID_LENGTH} characters; the engine "
            "shortens it in chats and not here, where most tokenizers then refuse it",
        )
    return chat_answer(chat, call, lambda routing, call: rendered(chat, routing, call, request_id))


def count_responses(request: ResponsesRequest, call: Call) -> Reply:
    """The answer of ``/v1/responses/input_tokens``."""
    reply = answer_responses(request, call._replace(blocks=None, tokens_only=True))
    count = len(reply.body["token_ids"])
    answer = {"object": "response.input_tokens", "input_tokens": count}
    return Reply(answer, reply.routings)


def _answer_conversation(
    request: ResponsesRequest, options: ChatCompletionRequest, call: Call, request_id: str
) -> Reply:
    """The answer for a model whose requests Harmony renders without making a chat."""
    model = call.model
    model.chats.check_template(options)
    chat = model.model.chat
    if isinstance(chat, RefusedChat):
        raise of_reason(Reason.CHAT_RENDERER_UNSUPPORTED, chat.why)
    # Harmony is an extra, and slow to import.
    from mmroute.server.engines.vllm.bodies.responses_harmony import conversation_ids

    chat = cast("HarmonyChat", chat)
    ids = conversation_ids(request, chat, tool_server=model.tool_server)
    routing = route_ids(model, options, truncated_ids(options, ids, model.max_model_len))
    answer = rendered(options, routing, call, request_id)
    if not call.tokens_only:
        describe_to_parser(answer, template_kwargs(options))
    return Reply(answer, [routing])
