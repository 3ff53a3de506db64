"""``/v1/chat/completions/derender`` and ``/v1/completions/derender``: from token IDs to answers.

Source: vLLM 0.33.0 ``entrypoints/scale_out/derender/serving.py`` and
``renderers/online_derenderer.py`` without parsers, and its answers as observed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from mmroute.errors import Reason
from mmroute.server.derender_protocol import (
    DerenderChat,
    DerenderChatStreamRequest,
    DerenderCompletion,
    DerenderCompletionStreamRequest,
    DerenderStreamState,
    GeneratedChoice,
    GenerateTokensResponse,
    GenerateTokensStreamResponse,
)
from mmroute.server.errors import of_reason, require
from mmroute.server.handling import HandlerContext, HandlerResult, result_of
from mmroute.server.loading import LoadedModel
from mmroute.server.output_text import (
    LONGEST_SEED,
    first_state,
    next_text,
    output_text,
    without_stop_token,
)
from mmroute.server.protocol import ChatCompletionRequest, RenderRequest
from mmroute.server.routings import MAX_TOKEN_ID

__all__ = ["derender_chat", "derender_completion"]

_Response: TypeAlias = GenerateTokensResponse | GenerateTokensStreamResponse
_Stream: TypeAlias = DerenderChatStreamRequest | DerenderCompletionStreamRequest
_Decoded: TypeAlias = Iterator[tuple[GeneratedChoice, str, dict[str, Any]]]
"""Answers, or parts of them: each with its text and the fields that say how it ended."""

_NOTHING_ASKED: Final = ChatCompletionRequest(messages=[])
_LOGPROB_CONTEXT: Final = 4
_NO_STOP_STRINGS: Final = (
    "stop strings are not supported by streaming derender because text already sent cannot be "
    "cut. Use non-streaming derender or output_mode=text on /inference/v1/generate which holds "
    "stop strings back."
)


def derender_chat(request: DerenderChat, context: HandlerContext) -> HandlerResult:
    """The answers to a chat, or a part of one."""
    loaded = context.models.find(request.model)
    asked = request.chat_request or _NOTHING_ASKED
    if loaded.outputs.parser:
        raise of_reason(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"the engine parses the answers to chats ({loaded.outputs.parser}), and parsers are "
            "not covered",
            model=loaded.name,
        )
    if asked.tools and asked.tool_choice != "none":
        raise of_reason(
            Reason.UNSUPPORTED_FIELD,
            "chat_request.tools: calls of tools are found by a parser, and parsers are not covered",
            model=loaded.name,
        )
    if isinstance(request, DerenderChatStreamRequest):
        return _part(request, asked, loaded)
    response = request.generate_response
    choices = []
    for choice, text, ended in _texts(loaded, response, request.prompt_token_ids, asked):
        message = {
            "role": "assistant", "content": text, "refusal": None, "annotations": None,
            "audio": None, "function_call": None, "reasoning": None,
        }  # fmt: skip
        choices.append({
            "index": choice.index, "message": message, **ended,
            "finish_reason": ended["finish_reason"] or "stop",
            "routed_experts": None, "weight_versions": None,
        })  # fmt: skip
    return result_of(loaded, {
        **_head("chat.completion", response, request.model or loaded.name), "choices": choices,
        "service_tier": None, "system_fingerprint": None,
        "usage": _usage(request.prompt_tokens or 0, _length([response])),
        "prompt_logprobs": response.prompt_logprobs,
        "prompt_token_ids": _prompt_ids(response, asked),
        "prompt_text": None, "kv_transfer_params": response.kv_transfer_params,
        "ec_transfer_params": None, "metrics": response.metrics,
    })  # fmt: skip


def derender_completion(request: DerenderCompletion, context: HandlerContext) -> HandlerResult:
    """The answers to the prompts of a completion, or a part of one."""
    loaded = context.models.find(request.model)
    asked = request.completion_request or _NOTHING_ASKED
    if isinstance(request, DerenderCompletionStreamRequest):
        return _part(request, asked, loaded)
    responses, choices = request.generate_responses, list[dict[str, Any]]()
    require(responses, "generate_responses must not be empty")
    prompts = request.prompt_token_ids or [None] * len(responses)
    for response, prompt in zip(responses, prompts, strict=True):
        for _, text, ended in _texts(loaded, response, prompt, asked):
            choices.append({
                "index": len(choices), "text": text, **ended, "prompt_logprobs": None,
                "prompt_token_ids": _prompt_ids(response, asked),
                "routed_experts": None, "weight_versions": None,
            })  # fmt: skip
    first, *others = responses
    same = all(other.kv_transfer_params == first.kv_transfer_params for other in others)
    return result_of(loaded, {
        **_head("text_completion", first, request.model or loaded.name), "choices": choices,
        "service_tier": None, "system_fingerprint": None,
        "usage": _usage(sum(request.prompt_tokens or ()), _length(responses)),
        "kv_transfer_params": first.kv_transfer_params if same else None,
        "ec_transfer_params": None, "metrics": None if others else first.metrics,
    })  # fmt: skip


def _part(request: _Stream, asked: RenderRequest, loaded: LoadedModel) -> HandlerResult:
    """A part of an answer, and the state behind it.

    The IDs of the prompt stand in the part of a chat, and in the choice of a completion.
    """
    chunk, state, choices = request.generate_chunk, _state(request, asked, loaded), []
    of_chat = isinstance(request, DerenderChatStreamRequest)
    kind = "chat.completion.chunk" if of_chat else "text_completion"
    prompt_ids = {"prompt_token_ids": _prompt_ids(chunk, asked)}
    of_prompt = {**prompt_ids, "prompt_text": None} if of_chat else {}
    for choice, text, ended in _next_texts(loaded, chunk, state, asked):
        choice_ids = {"token_ids": ended.pop("token_ids"), "weight_versions": None}
        if of_chat:
            role = None if state.role_sent else "assistant"
            state.role_sent = True
            delta = {"role": role, "content": text or None, "reasoning": None}
            choices.append({"index": choice.index, "delta": delta, **ended, **choice_ids})
        else:
            state.logprob_text_offset += len(text)
            said = {"index": choice.index, "text": text}
            choices.append({**said, **ended, **prompt_ids, **choice_ids})
    body = {
        **_head(kind, chunk, request.model or loaded.name), "choices": choices,
        "usage": _usage_so_far(request), "system_fingerprint": None, **of_prompt,
        "metrics": chunk.metrics, "kv_transfer_params": None,
    }  # fmt: skip
    return result_of(loaded, {"chunk": body, "stream_state": state.model_dump()})


def _texts(
    loaded: LoadedModel,
    response: GenerateTokensResponse,
    prompt: Sequence[int] | None,
    asked: RenderRequest,
) -> _Decoded:
    skip = _skips_special_tokens(loaded, asked, in_parts=False)
    seed = _seed(loaded, response, prompt)
    for choice in response.choices:
        _check(loaded, choice)
        require(choice.token_ids, f"choice {choice.index} has empty or null token_ids")
        text, reason = output_text(
            loaded.model.tokenizer, loaded.outputs, choice, asked, prompt=seed,
            skip_special_tokens=skip,
        )  # fmt: skip
        yield choice, text, _ended(choice, reason, asked)


def _state(request: _Stream, asked: RenderRequest, loaded: LoadedModel) -> DerenderStreamState:
    """The state that the client sent; without one, the state behind the prompt."""
    count = len(request.generate_chunk.choices)
    require(not asked.stop, _NO_STOP_STRINGS)
    require(count <= 1, f"derender expects at most one choice per chunk (got {count}).")
    skip = _skips_special_tokens(loaded, asked, in_parts=True)
    seed = _seed(loaded, request.generate_chunk, request.prompt_token_ids)
    return request.stream_state or first_state(
        loaded.model.tokenizer, seed, skip_special_tokens=skip
    )


def _next_texts(
    loaded: LoadedModel,
    chunk: GenerateTokensStreamResponse,
    state: DerenderStreamState,
    asked: RenderRequest,
) -> _Decoded:
    skip = asked.skip_special_tokens is not False
    for choice in chunk.choices:
        _check(loaded, choice)
        ids, reason = without_stop_token(choice, asked, loaded.outputs)
        text = next_text(loaded.model.tokenizer, state, ids, skip_special_tokens=skip)
        context = [*state.logprob_context_token_ids, *(choice.token_ids or ())]
        state.logprob_context_token_ids = context[-_LOGPROB_CONTEXT:]
        yield choice, text, _ended(choice, reason, asked)


def _seed(loaded: LoadedModel, response: _Response, prompt: Sequence[int] | None) -> Sequence[int]:
    """The end of the prompt, behind which an answer is decoded."""
    _check_length(loaded, "prompt_token_ids", prompt)
    seed = ((response.prompt_token_ids if prompt is None else prompt) or ())[-LONGEST_SEED:]
    require(max(seed, default=0) <= MAX_TOKEN_ID, "number too large to fit in target type")
    return seed


def _skips_special_tokens(loaded: LoadedModel, asked: RenderRequest, *, in_parts: bool) -> bool:
    skip = asked.skip_special_tokens is not False
    if loaded.model.tokenizer.chat_encoder is not None and (in_parts or not skip):
        raise of_reason(
            Reason.UNSUPPORTED_TOKENIZER,
            "answers of Mistral's own tokenizers are covered whole, and without special tokens",
            model=loaded.name,
        )
    return skip


def _check(loaded: LoadedModel, choice: GeneratedChoice) -> None:
    _check_length(loaded, "token_ids", choice.token_ids)
    if choice.logprobs is not None and choice.logprobs.get("content") is not None:
        raise of_reason(
            Reason.UNSUPPORTED_FIELD,
            "logprobs: the texts of single tokens are not told",
            model=loaded.name,
        )


def _check_length(loaded: LoadedModel, name: str, ids: Sequence[int] | None) -> None:
    length, limit = len(ids or ()), loaded.max_model_len
    require(length <= limit, f"{name} length ({length}) exceeds max_model_len ({limit}).")


def _head(kind: str, response: _Response, model: str) -> dict[str, Any]:
    return {"id": response.request_id, "object": kind, "created": int(time.time()), "model": model}


def _ended(
    choice: GeneratedChoice, reason: int | str | None, asked: RenderRequest
) -> dict[str, Any]:
    return {
        "logprobs": None, "finish_reason": choice.finish_reason, "stop_reason": reason,
        "token_ids": choice.token_ids if asked.return_token_ids else None,
    }  # fmt: skip


def _prompt_ids(response: _Response, asked: RenderRequest) -> list[int] | None:
    return response.prompt_token_ids if asked.return_token_ids else None


def _length(responses: Sequence[GenerateTokensResponse]) -> int:
    choices = [choice for response in responses for choice in response.choices]
    return sum(len(choice.token_ids or ()) for choice in choices)


def _usage_so_far(request: _Stream) -> dict[str, Any] | None:
    usage, prompt = request.generate_chunk.usage, request.prompt_tokens
    if usage is None:
        return None
    return _usage(usage.prompt_tokens if prompt is None else prompt, usage.completion_tokens or 0)


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt, "total_tokens": prompt + completion,
        "completion_tokens": completion, "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }  # fmt: skip
