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
from mmroute.server.errors import ApiError, bad_request, of_reason, require
from mmroute.server.handling import HandlerContext, HandlerResult, result_of
from mmroute.server.loading import LoadedModel
from mmroute.server.output_text import LONGEST_SEED, Ending, Window, continued, output_text
from mmroute.server.protocol import RenderRequest
from mmroute.server.routings import MAX_TOKEN_ID
from mmroute.tokenizers import Tokenizer

__all__ = ["derender_chat", "derender_completion"]

_Stream: TypeAlias = DerenderChatStreamRequest | DerenderCompletionStreamRequest
_Decoded: TypeAlias = Iterator[tuple[GeneratedChoice, str, int | str | None]]
"""Answers, or parts of them, each with its text, and what ended it."""

_LOGPROB_CONTEXT: Final = 4
_NO_STOP_STRINGS: Final = (
    "stop strings are not supported by streaming derender because text already sent cannot be "
    "cut. Use non-streaming derender or output_mode=text on /inference/v1/generate which holds "
    "stop strings back."
)


def derender_chat(request: DerenderChat, context: HandlerContext) -> HandlerResult:
    """The answers to a chat, or a part of one.

    Raises:
        ApiError: what vLLM refuses, and what is not covered.
    """
    loaded, asked = context.models.find(request.model), request.chat_request
    if loaded.outputs.parser:
        raise of_reason(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"the engine parses the answers to chats ({loaded.outputs.parser}), and parsers are "
            "not covered",
            model=loaded.name,
        )
    if asked is not None and asked.tools and asked.tool_choice != "none":
        raise _unsupported(loaded, "chat_request.tools", "calls of tools are found by a parser")
    with_ids = asked is not None and asked.return_token_ids
    if isinstance(request, DerenderChatStreamRequest):
        chunk, state = request.generate_chunk, request.stream_state or DerenderStreamState()
        parts: list[dict[str, Any]] = []
        for choice, text, reason in _continued(loaded, request, state, asked):
            role = None if state.role_sent else "assistant"
            state.role_sent = True
            delta = {"role": role, "content": text or None, "reasoning": None}
            parts.append({
                "index": choice.index, "delta": delta, **_ended(choice, reason),
                "token_ids": choice.token_ids if with_ids else None, "weight_versions": None,
            })  # fmt: skip
        body = {
            **_head("chat.completion.chunk", chunk, request.model or loaded.name),
            "choices": parts,
            "usage": _usage_so_far(request),
            "system_fingerprint": None,
            "prompt_token_ids": chunk.prompt_token_ids if with_ids else None,
            "prompt_text": None,
            "metrics": chunk.metrics,
            "kv_transfer_params": None,
        }
        return result_of(loaded, {"chunk": body, "stream_state": state.model_dump()})
    response = request.generate_response
    choices = []
    for choice, text, reason in _texts(loaded, response, request.prompt_token_ids, asked):
        message = {
            "role": "assistant", "content": text, "refusal": None, "annotations": None,
            "audio": None, "function_call": None, "reasoning": None,
        }  # fmt: skip
        choices.append({
            "index": choice.index, "message": message, **_ended(choice, reason),
            "token_ids": choice.token_ids if with_ids else None, "routed_experts": None,
            "weight_versions": None,
        } | {"finish_reason": choice.finish_reason or "stop"})  # fmt: skip
    return result_of(loaded, {
        **_head("chat.completion", response, request.model or loaded.name),
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": _usage(request.prompt_tokens or 0, _length(response.choices)),
        "prompt_logprobs": response.prompt_logprobs,
        "prompt_token_ids": response.prompt_token_ids if with_ids else None,
        "prompt_text": None,
        "kv_transfer_params": response.kv_transfer_params,
        "ec_transfer_params": None,
        "metrics": response.metrics,
    })  # fmt: skip


def derender_completion(request: DerenderCompletion, context: HandlerContext) -> HandlerResult:
    """The answers to the prompts of a completion, or a part of one.

    Raises:
        ApiError: what vLLM refuses, and what is not covered.
    """
    loaded, asked = context.models.find(request.model), request.completion_request
    with_ids = asked is not None and asked.return_token_ids
    choices: list[dict[str, Any]] = []
    if isinstance(request, DerenderCompletionStreamRequest):
        chunk, state = request.generate_chunk, request.stream_state or DerenderStreamState()
        for choice, text, reason in _continued(loaded, request, state, asked):
            state.logprob_text_offset += len(text)
            choices.append({
                "index": choice.index, "text": text, **_ended(choice, reason),
                "prompt_token_ids": chunk.prompt_token_ids if with_ids else None,
                "token_ids": choice.token_ids if with_ids else None, "weight_versions": None,
            })  # fmt: skip
        body = {
            **_head("text_completion", chunk, request.model or loaded.name),
            "choices": choices,
            "usage": _usage_so_far(request),
            "system_fingerprint": None,
            "metrics": chunk.metrics,
            "kv_transfer_params": None,
        }
        return result_of(loaded, {"chunk": body, "stream_state": state.model_dump()})
    responses = request.generate_responses
    require(responses, "generate_responses must not be empty")
    prompts = request.prompt_token_ids or [None] * len(responses)
    for response, prompt in zip(responses, prompts, strict=True):
        for choice, text, reason in _texts(loaded, response, prompt, asked):
            choices.append({
                "index": len(choices), "text": text, **_ended(choice, reason),
                "token_ids": choice.token_ids if with_ids else None, "prompt_logprobs": None,
                "prompt_token_ids": response.prompt_token_ids if with_ids else None,
                "routed_experts": None, "weight_versions": None,
            })  # fmt: skip
    first, *others = responses
    same = all(other.kv_transfer_params == first.kv_transfer_params for other in others)
    completed = sum(_length(response.choices) for response in responses)
    return result_of(loaded, {
        **_head("text_completion", first, request.model or loaded.name),
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": _usage(sum(request.prompt_tokens or ()), completed),
        "kv_transfer_params": first.kv_transfer_params if same else None,
        "ec_transfer_params": None,
        "metrics": None if others else first.metrics,
    })  # fmt: skip


def _texts(
    loaded: LoadedModel,
    response: GenerateTokensResponse,
    prompt: Sequence[int] | None,
    asked: RenderRequest | None,
) -> _Decoded:
    seed = _seed(loaded, response, prompt)
    skip = _skips_special_tokens(loaded, asked, in_parts=False)
    for choice in response.choices:
        _check_length(loaded, "token_ids", choice.token_ids)
        if not choice.token_ids:
            raise bad_request(f"choice {choice.index} has empty or null token_ids")
        yield (
            choice,
            *output_text(
                loaded.model.tokenizer,
                loaded.outputs,
                choice.token_ids,
                _ending(loaded, choice, asked),
                prompt=seed,
                skip_special_tokens=skip,
            ),
        )


def _continued(
    loaded: LoadedModel,
    request: _Stream,
    state: DerenderStreamState,
    asked: RenderRequest | None,
) -> _Decoded:
    """The state is changed to the next one."""
    chunk, prompt, tokenizer = (
        request.generate_chunk,
        request.prompt_token_ids,
        loaded.model.tokenizer,
    )
    require(asked is None or not asked.stop, _NO_STOP_STRINGS)
    require(len(chunk.choices) <= 1, f"at most one choice per chunk (got {len(chunk.choices)}).")
    seed = _seed(loaded, chunk, prompt)
    skip = _skips_special_tokens(loaded, asked, in_parts=True)
    if request.stream_state is None:
        window = Window.behind(tokenizer, seed, skip=skip)
    else:
        window = _window(tokenizer, state)
    for choice in chunk.choices:
        given = choice.token_ids or []
        _check_length(loaded, "token_ids", given)
        ids, reason = _ending(loaded, choice, asked).without_stop_token(given, loaded.outputs)
        text, window = continued(tokenizer, window, ids, skip=skip)
        context = [*state.logprob_context_token_ids, *given]
        state.logprob_context_token_ids = context[-_LOGPROB_CONTEXT:]
        yield choice, text, reason
    state.prev_tokens = [tokenizer.token(token_id) or "" for token_id in window.ids]
    state.prefix_offset, state.read_offset = 0, window.read


def _seed(
    loaded: LoadedModel,
    response: GenerateTokensResponse | GenerateTokensStreamResponse,
    prompt: Sequence[int] | None,
) -> Sequence[int]:
    """The end of the prompt, behind which an answer is decoded."""
    _check_length(loaded, "prompt_token_ids", prompt)
    seed = ((response.prompt_token_ids if prompt is None else prompt) or ())[-LONGEST_SEED:]
    require(max(seed, default=0) <= MAX_TOKEN_ID, "number too large to fit in target type")
    return seed


def _window(tokenizer: Tokenizer, state: DerenderStreamState) -> Window:
    """An empty token is an ID outside the vocabulary, which has no text."""
    tokens = state.prev_tokens[state.prefix_offset :]
    ids = [tokenizer.token_id(token) if token else tokenizer.vocab_size for token in tokens]
    known = [token_id for token_id in ids if token_id is not None]
    require(len(known) == len(ids), "invalid stream_state: derender failed")
    return Window(known, max(state.read_offset - state.prefix_offset, 0))


def _ending(loaded: LoadedModel, choice: GeneratedChoice, asked: RenderRequest | None) -> Ending:
    if choice.logprobs is not None and choice.logprobs.get("content") is not None:
        raise _unsupported(loaded, "logprobs", "the texts of single tokens are not told")
    if asked is None:
        return Ending(choice.finish_reason, choice.stop_reason)
    return Ending(
        choice.finish_reason,
        choice.stop_reason,
        [asked.stop] if isinstance(asked.stop, str) else asked.stop or (),
        asked.stop_token_ids or (),
        asked.min_tokens,
        asked.ignore_eos,
        asked.include_stop_str_in_output,
    )


def _skips_special_tokens(
    loaded: LoadedModel, asked: RenderRequest | None, *, in_parts: bool
) -> bool:
    skip = asked is None or asked.skip_special_tokens is not False
    if loaded.model.tokenizer.chat_encoder is not None and (in_parts or not skip):
        raise of_reason(
            Reason.UNSUPPORTED_TOKENIZER,
            "answers of Mistral's own tokenizers are covered whole, and without special tokens",
            model=loaded.name,
        )
    return skip


def _check_length(loaded: LoadedModel, name: str, ids: Sequence[int] | None) -> None:
    length, limit = len(ids or ()), loaded.max_model_len
    require(length <= limit, f"{name} length ({length}) exceeds max_model_len ({limit}).")


def _unsupported(loaded: LoadedModel, field: str, why: str) -> ApiError:
    return of_reason(Reason.UNSUPPORTED_FIELD, f"{field}: {why}", model=loaded.name)


def _head(
    kind: str, response: GenerateTokensResponse | GenerateTokensStreamResponse, model: str
) -> dict[str, Any]:
    return {"id": response.request_id, "object": kind, "created": int(time.time()), "model": model}


def _ended(choice: GeneratedChoice, reason: int | str | None) -> dict[str, Any]:
    return {"logprobs": None, "finish_reason": choice.finish_reason, "stop_reason": reason}


def _length(choices: Sequence[GeneratedChoice]) -> int:
    return sum(len(choice.token_ids or ()) for choice in choices)


def _usage_so_far(request: _Stream) -> dict[str, Any] | None:
    usage, prompt = request.generate_chunk.usage, request.prompt_tokens
    if usage is None:
        return None
    return _usage(usage.prompt_tokens if prompt is None else prompt, usage.completion_tokens or 0)


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
