"""Answers to chats: ``/v1/chat/completions/render``.

Source: vLLM ``entrypoints/scale_out/render/serving.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.errors import require, unsupported_field
from mmroute.engines.vllm.defaults import own_template_kwargs
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.server.api import Reply
from mmroute.server.api_errors import bad_request
from mmroute.server.engines.vllm.chats import exact_chat, request_for
from mmroute.server.engines.vllm.harmony_output import tagged
from mmroute.server.engines.vllm.model import Call
from mmroute.server.engines.vllm.rendering import rendered, request_id_of, route_ids
from mmroute.server.engines.vllm.truncation import truncated_text

_UNSET: Final = (None, "auto")
_WITHOUT_TENSORS: Final = {
    given: {"x-mmroute-mm-payload": "metadata" if given else "none"} for given in (False, True)
}


def answer_chat(chat: ChatCompletionRequest, call: Call) -> Reply:
    """The answer of ``/v1/chat/completions/render``."""
    check_chat(chat, call)
    return chat_answer(chat, call, partial(_answer, chat))


def check_chat(chat: ChatCompletionRequest, call: Call) -> None:
    """Refuse a chat that vLLM refuses; requests of the Responses API are not checked so."""
    rules = call.model.chats
    if rules.harmony:
        return
    rules.check_tools(chat.tools or None, chat.tool_choice)
    templated = chat.chat_template is not None or chat.chat_template_kwargs is not None
    if templated and not rules.templated:
        message = "chat_template is not supported for Mistral tokenizers."
        raise bad_request(message, "chat_template")


def chat_routing(chat: ChatCompletionRequest, call: Call) -> Routing:
    """The routing of the prompt, which all fields of the body may change."""
    model = call.model
    forwarded = _forwarded_ids(chat, call)
    if forwarded is not None:
        chat.return_token_offsets = False  # the engine has none of such IDs
        return route_ids(model, chat, forwarded)
    limited = chat.truncate_prompt_tokens is None or model.chats.harmony
    routing = exact_chat(chat, call, limited=limited)
    if model.chats.harmony:
        return routing
    return truncated_text(chat, routing, model, special_tokens=chat.add_special_tokens)


def chat_answer(
    chat: ChatCompletionRequest, call: Call, answer_of: Callable[[Routing, Call], dict[str, Any]]
) -> Reply:
    """The answer to a chat."""
    routing = chat_routing(chat, call)
    answer = answer_of(routing, call)
    features = answer["features"]
    if features is None or chat.mm_payload == "none":
        return Reply(answer, [routing])
    return Reply(answer, [routing], _WITHOUT_TENSORS[features["mm_metadata"] is not None])


def template_kwargs(chat: ChatCompletionRequest) -> dict[str, Any]:
    """The variables of the chat template, as vLLM hands them to parsers."""
    own = chat.chat_template_kwargs or {}
    every = own_template_kwargs(own, chat.reasoning_effort, chat.documents)
    others = {name: value for name, value in every.items() if value not in _UNSET}
    kwargs: dict[str, Any] = {"cohere_format": "cmd4"}  # a default of vLLM's own, for every model
    for name in own:
        if name in others:
            kwargs[name] = others.pop(name)
    kwargs["add_generation_prompt"] = chat.add_generation_prompt
    kwargs["continue_final_message"] = chat.continue_final_message
    return kwargs | others


def _answer(chat: ChatCompletionRequest, routing: Routing, call: Call) -> dict[str, Any]:
    answer = rendered(chat, routing, call, request_id_of("chatcmpl", chat, call))
    if call.tokens_only:
        return answer
    kwargs = template_kwargs(chat)
    if call.model.chats.harmony:
        answer["reasoning_ended"] = True
        answer["parse_context"] = _parse_context(chat)
        describe_to_parser(answer, kwargs)
    else:  # without a reasoning parser only the request itself can say so
        answer["reasoning_ended"] = None if chat.include_reasoning else True
        answer["parse_context"] = _parse_context(chat) | {"chat_template_kwargs": kwargs}
    if chat.return_token_offsets:
        answer["token_offsets"] = _offsets(chat, call)
    return answer


def describe_to_parser(answer: dict[str, Any], kwargs: Mapping[str, Any]) -> None:
    """Put the variables and structural tags that Harmony's parser reads into an answer."""
    answer["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}
    sampling = answer["sampling_params"]
    if sampling is not None and "structured_outputs" in sampling:
        sampling["structured_outputs"] = tagged(sampling["structured_outputs"])


def _offsets(chat: ChatCompletionRequest, call: Call) -> list[tuple[int, int]] | None:
    """The start and end of each token in the rendered text, in characters."""
    model = call.model.model
    if model.chat.templates is None:
        return None
    request = request_for(chat, call.model.chats)
    request = model.engine.accept(request, model.chat)
    parsed = model.chat.read(request)
    text = model.chat.render(parsed, {}, request)
    if parsed.media or not isinstance(text, str):
        return None
    return model.tokenizer.offsets(text, add_special_tokens=chat.add_special_tokens)


def _parse_context(chat: ChatCompletionRequest) -> dict[str, Any]:
    """The `parse_context` of the answer, without the variables of the chat template."""
    called = [m.get("tool_calls") for m in chat.messages if m["role"] == "assistant"]
    return {
        "tools": normalize_tools(chat.tools) if chat.tools else chat.tools,
        "tool_choice": chat.plain_tool_choice(),
        "parallel_tool_calls": chat.parallel_tool_calls,
        "include_reasoning": chat.include_reasoning,
        "chat_template_kwargs": {},
        "history_tool_call_cnt": sum([len(calls) for calls in called if isinstance(calls, list)]),
    }


def _forwarded_ids(chat: ChatCompletionRequest, call: Call) -> list[int] | None:
    """The token IDs that a prefill engine rendered, which vLLM takes in place of messages."""
    ids = (chat.kv_transfer_params or {}).pop("prompt_token_ids", None)
    if ids is None or chat.echo:
        return None
    if not call.model.chats.harmony:
        call.model.chats.check_template(chat)
    name = "kv_transfer_params.prompt_token_ids"
    ids_given = isinstance(ids, list) and ids and all(type(i) is int and i >= 0 for i in ids)
    require(
        ids_given,
        "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative "
        "integers.",
        name,
    )
    known = max(ids) <= call.model.model.max_token_id
    require(known, f"Token id {max(ids)} is out of vocabulary", name)
    if not call.model.chats.takes_ids_beside(chat.messages):
        raise unsupported_field(
            f"{name} is not covered beside messages in parts: it depends on the parts whether "
            "the engine takes the IDs",
        )
    found: list[int] = ids
    return found
