"""The render routes: of chats, completions, Anthropic's messages and OpenAI's responses.

Source: vLLM 0.33.0 ``entrypoints/scale_out/render/serving.py``, ``renderers/params.py``
(`TokenizeParams`), and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mmroute.answering.hash_forms import HashFields
from mmroute.answering.routing import Routing
from mmroute.answering.stages import Stage
from mmroute.engines.vllm.api.answers import GenerateRequest, features_of
from mmroute.engines.vllm.api.chats import check_template, check_trust, exact, exact_chat
from mmroute.engines.vllm.api.errors import ApiError, bad_request, of_reason, require
from mmroute.engines.vllm.api.harmony_output import tagged
from mmroute.engines.vllm.api.messages_chat import chat_of_messages
from mmroute.engines.vllm.api.messages_protocol import AnthropicMessagesRequest
from mmroute.engines.vllm.api.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    RenderRequest,
)
from mmroute.engines.vllm.api.responses_chat import chat_of_responses, options_of_responses
from mmroute.engines.vllm.api.responses_protocol import ResponsesRequest
from mmroute.engines.vllm.api.routings import (
    Prompt,
    chat_offsets,
    has_template,
    route_beginning,
    route_conversation,
    route_ids,
    route_prompt,
)
from mmroute.engines.vllm.api.sampling import check_output_budget, sampling_params
from mmroute.engines.vllm.api.truncation import truncated_text
from mmroute.engines.vllm.defaults import own_template_kwargs
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import InexactError, Reason, quoted
from mmroute.server.handling import HandlerContext, HandlerResult, result_of
from mmroute.server.loading import LoadedModel
from mmroute.server.settings import InexactPolicy

_UNSET: Final = (None, "auto")
# Reasons of inexact chats whose tokens before the first item are known nevertheless.
_OF_ITEMS: Final = frozenset({
    Reason.IMAGE_SIZE_UNKNOWN, Reason.IMAGE_LINK_REFUSED, Reason.IMAGE_LINK_FAILED,
    Reason.IMAGE_UNREADABLE, Reason.IMAGE_IDENTITY_UNKNOWN, Reason.ITEM_TOO_LARGE,
    Reason.ITEM_IDENTITY_UNKNOWN, Reason.VIDEO_NOT_PREDICTABLE, Reason.AUDIO_NOT_PREDICTABLE,
})  # fmt: skip
_NO_TENSORS: Final = {"x-mmroute-mm-payload": "none"}


def render_chat(request: ChatCompletionRequest, context: HandlerContext) -> HandlerResult:
    """The prompt of a chat, as the engine would get it."""
    loaded = _model_of(request, context)

    def answer_of(routing: Routing) -> GenerateRequest:
        request_id = _request_id("chatcmpl", request, context)
        answer = _answer(request, routing, context, loaded, request_id)
        kwargs = _template_kwargs(request)
        # Without a reasoning parser only the request itself can say so.
        answer["reasoning_ended"] = None if request.include_reasoning else True
        if loaded.by_harmony:  # the engine always has one for these models
            answer["reasoning_ended"] = True
            answer["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}
            kwargs = {}
        answer["parse_context"] = _parse_context(request, kwargs)
        if request.return_token_offsets:
            answer["token_offsets"] = chat_offsets(loaded, request)
        return answer

    _check_as_chat(request, context, loaded)
    return _rendered(request, context, loaded, answer_of)


def render_messages(request: AnthropicMessagesRequest, context: HandlerContext) -> HandlerResult:
    """The prompt of a request of the Anthropic Messages API."""
    loaded = context.models.find(request.model)
    return render_chat(chat_of_messages(request, loaded.messages()), context)


def render_responses(request: ResponsesRequest, context: HandlerContext) -> HandlerResult:
    """The prompt of a request of the OpenAI Responses API."""
    loaded = context.models.find(request.model)
    request_id = request.request_id
    if "request_id" not in request.model_fields_set:
        request_id = f"resp_{context.own_id}"
    if loaded.by_harmony:
        return _render_conversation(request, context, loaded, request_id)
    chat = chat_of_responses(request)
    in_parts = any(isinstance(m.get("content"), list) and m["content"] for m in chat.messages)
    require(
        not in_parts or has_template(loaded),
        "mistral-common takes no `input_text` and no `input_image`; send texts, or a chat.",
    )
    check_output_budget(request, loaded.max_model_len)
    return _rendered(
        chat, context, loaded, lambda routing: _answer(chat, routing, context, loaded, request_id)
    )


def _render_conversation(
    request: ResponsesRequest, context: HandlerContext, loaded: LoadedModel, request_id: str
) -> HandlerResult:
    options = options_of_responses(request)
    check_template(options)
    routing = route_conversation(loaded, request, options)
    answer = _answer(options, routing, context, loaded, request_id)
    answer["reasoning_parser_kwargs"] = {"chat_template_kwargs": _template_kwargs(options)}
    return result_of(loaded, answer, [routing])


def _rendered(
    request: ChatCompletionRequest,
    context: HandlerContext,
    loaded: LoadedModel,
    answer_of: Callable[[Routing], GenerateRequest],
) -> HandlerResult:
    try:
        routing = _route(request, context, loaded)
        answer = answer_of(routing)
    except ApiError as error:
        wanted = context.settings.inexact is InexactPolicy.TEXT_PREFIX
        cut = request.truncate_prompt_tokens is not None
        if not wanted or error.reason not in _OF_ITEMS or cut:
            raise
        beginning = route_beginning(loaded, request)
        if beginning is None:
            raise
        answer = answer_of(beginning)
        answer["sampling_params"] = None  # or it could be posted on, and answered
        answer["inexact"] = {"reason": error.reason.value, "message": error.message}
        return result_of(loaded, answer, [beginning], inexact=error.reason)
    no_tensors = answer["features"] is not None and request.mm_payload == "tensors"
    return result_of(loaded, answer, [routing], _NO_TENSORS if no_tensors else None)


def route_chat_request(
    request: ChatCompletionRequest, context: HandlerContext, loaded: LoadedModel
) -> Routing:
    """The routing of a chat, with all fields that change its prompt.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    _check_as_chat(request, context, loaded)
    return _route(request, context, loaded)


def _route(request: ChatCompletionRequest, context: HandlerContext, loaded: LoadedModel) -> Routing:
    forwarded = _forwarded_ids(request, context, loaded)
    if forwarded is not None:
        request.return_token_offsets = False  # the engine has none of such IDs
        return route_ids(loaded, request, forwarded)
    routing = exact_chat(loaded, request, context.settings)
    return routing if loaded.by_harmony else truncated_text(request, routing, loaded)


def render_completion(request: CompletionRequest, context: HandlerContext) -> HandlerResult:
    """The prompts of a completion, one answer for each."""
    loaded = _model_of(request, context)
    prompts = _prompts(request)
    base = _request_id("cmpl", request, context)
    routings, answers = [], []
    for number, prompt in enumerate(prompts):
        hashed = context.blocks is not None
        routing = exact(loaded, route_prompt(loaded, request, prompt, in_vocabulary=hashed))
        if isinstance(prompt, str):
            routing = truncated_text(request, routing, loaded)
        request_id = base if len(prompts) == 1 else f"{base}-{number}"
        answer = _answer(request, routing, context, loaded, request_id)
        if request.return_token_offsets and isinstance(prompt, str):
            answer["token_offsets"] = loaded.model.tokenizer.offsets(
                prompt, add_special_tokens=request.add_special_tokens
            )
        answers.append(answer)
        routings.append(routing)
    return result_of(loaded, answers, routings)


def _model_of(request: RenderRequest, context: HandlerContext) -> LoadedModel:
    loaded = context.models.find(request.model)
    if request.use_beam_search:
        raise bad_request("Beam search is not supported by the render endpoint")
    if not (loaded.by_harmony and isinstance(request, ChatCompletionRequest)):
        check_output_budget(request, loaded.max_model_len)
    return loaded


def _answer(
    request: RenderRequest,
    routing: Routing,
    context: HandlerContext,
    loaded: LoadedModel,
    request_id: str,
) -> GenerateRequest:
    """The answer for one prompt, without what chats or completions alone have."""
    ids = routing.token_ids
    options = request.stream_options if request.stream else None
    try:
        features = features_of(routing)
        hashes: HashFields = {}
        if context.blocks is not None:
            context.models.watch.resume()
            hashes = context.blocks.of(routing)
            context.models.watch.lap(Stage.HASH)
    except InexactError as inexact:
        raise of_reason(inexact.reason, str(inexact), model=loaded.name) from None
    # Chats by Harmony are not cut, but the length of an answer is that of a cut one.
    cut = request.truncate_prompt_tokens
    length = len(ids) if cut is None or cut < 0 else min(len(ids), cut)
    sampling = sampling_params(request, loaded.defaults, loaded.max_model_len, length)
    constrained = isinstance(request, ChatCompletionRequest) and "structured_outputs" in sampling
    if constrained and loaded.by_harmony:
        sampling["structured_outputs"] = tagged(sampling["structured_outputs"])
    answer: GenerateRequest = {
        "request_id": request_id,
        "token_ids": ids,
        "token_offsets": None,
        "features": features,
        "content_parts": None,
        "sampling_params": sampling,
        "model": request.model,
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": request.return_token_ids,
        "output_mode": request.output_mode,
        "parse_context": None,
        "stream": bool(request.stream),
        "stream_options": None if options is None else options.model_dump(),
        "cache_salt": request.cache_salt,
        "priority": request.priority,
        "kv_transfer_params": request.kv_transfer_params or None,
        "ec_transfer_params": request.ec_transfer_params or None,
    }
    answer.update(hashes)  # type: ignore[typeddict-item]  # each of them is a key of it
    return answer


def _request_id(prefix: str, request: RenderRequest, context: HandlerContext) -> str:
    """The ID of the header ``X-Request-Id``, else of the body, else one of our own."""
    return f"{prefix}-{context.request_id or request.request_id or context.own_id}"


def _prompts(request: CompletionRequest) -> list[Prompt]:
    if request.suffix is not None:
        raise bad_request(
            "suffix is only supported for models with FIM completion rendering", "suffix"
        )
    if request.prompt_embeds not in (None, []):
        raise bad_request(
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds"
        )
    given = request.prompt
    if isinstance(given, str):
        return [given]
    if not given:
        raise bad_request("You must pass at least one prompt", "prompt")
    return [given] if isinstance(given[0], int) else given  # type: ignore[return-value]  # all of one kind


def _check_as_chat(
    request: ChatCompletionRequest, context: HandlerContext, loaded: LoadedModel
) -> None:
    """Refuse what vLLM refuses in chats, and not in requests of the Responses API."""
    choice = request.tool_choice
    unparsed = context.settings.strict and not loaded.by_harmony
    if unparsed and choice not in (None, "none"):
        raise bad_request(
            f"tool_choice={quoted(choice)} requires --enable-auto-tool-choice and "
            "--tool-call-parser to be set (--strict)"
        )
    templated = request.chat_template is not None or request.chat_template_kwargs is not None
    if templated and not has_template(loaded):
        raise bad_request("chat_template is not supported for Mistral tokenizers.", "chat_template")


def _forwarded_ids(
    request: ChatCompletionRequest, context: HandlerContext, loaded: LoadedModel
) -> list[int] | None:
    """The token IDs that the prefill engine rendered; vLLM takes them instead of the messages."""
    ids = (request.kv_transfer_params or {}).pop("prompt_token_ids", None)
    if ids is None or request.echo:
        return None
    check_trust(loaded, request, context.settings)
    name = "kv_transfer_params.prompt_token_ids"
    ids_given = isinstance(ids, list) and ids and all(type(i) is int and i >= 0 for i in ids)
    require(
        ids_given,
        "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative "
        "integers.",
        name,
    )
    known = max(ids) <= loaded.model.max_token_id
    require(known, f"Token id {max(ids)} is out of vocabulary", name)
    if not loaded.by_harmony and any(isinstance(m.get("content"), list) for m in request.messages):
        raise of_reason(
            Reason.UNSUPPORTED_FIELD,
            f"{name} beside messages in parts: whether the engine takes the IDs depends on the "
            "parts, and is not covered",
            model=loaded.name,
        )
    found: list[int] = ids
    return found


def _template_kwargs(request: ChatCompletionRequest) -> dict[str, Any]:
    own = request.chat_template_kwargs or {}
    every = own_template_kwargs(own, request.reasoning_effort, request.documents)
    every = {name: value for name, value in every.items() if value not in _UNSET}
    return {
        # A default of vLLM's own, for every model.
        "cohere_format": "cmd4",
        **{name: value for name, value in every.items() if name in own},
        "add_generation_prompt": request.add_generation_prompt,
        "continue_final_message": request.continue_final_message,
        **{name: value for name, value in every.items() if name not in own},
    }


def _parse_context(request: ChatCompletionRequest, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    choice = request.tool_choice
    called = [m.get("tool_calls") for m in request.messages if m["role"] == "assistant"]
    return {
        "tools": normalize_tools(request.tools) if request.tools else request.tools,
        "tool_choice": choice if choice is None or isinstance(choice, str) else choice.model_dump(),
        "parallel_tool_calls": request.parallel_tool_calls,
        "include_reasoning": request.include_reasoning,
        "chat_template_kwargs": kwargs,
        "history_tool_call_cnt": sum([len(calls) for calls in called if isinstance(calls, list)]),
    }
