"""The routings of the requests of all routes, by the normalizer of a loaded model.

Source: vLLM 0.33.0 ``renderers/online_renderer.py``, ``entrypoints/openai/completion/protocol.py``
and ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.api.errors import of_reason
from mmroute.engines.vllm.api.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    RenderRequest,
    TokenizeChatRequest,
)
from mmroute.engines.vllm.api.responses_protocol import ResponsesRequest
from mmroute.engines.vllm.api.sampling import check_output_budget
from mmroute.engines.vllm.api.text_prefix import rendered_chat, text_prefix
from mmroute.engines.vllm.api.truncation import truncated_ids
from mmroute.engines.vllm.chats import RefusedChat
from mmroute.errors import Reason, quoted
from mmroute.geometry import TokenIds
from mmroute.requests.items import Modality
from mmroute.requests.request import NO_KWARGS, Request
from mmroute.server.loading import LoadedModel

if TYPE_CHECKING:
    from mmroute.engines.vllm.harmony_chat import HarmonyChat

ChatRequest: TypeAlias = ChatCompletionRequest | TokenizeChatRequest
Prompt: TypeAlias = str | list[int]
"""A prompt of a completion: a text, or token IDs."""
MAX_TOKEN_ID: Final = 2**32 - 1


def route_chat(loaded: LoadedModel, request: ChatRequest) -> Routing:
    """The routing of a chat.

    A prompt longer than the context is refused, unless it is only counted (``/tokenize``) or cut
    afterwards; vLLM cuts no chats that Harmony renders.
    """
    limited = isinstance(request, ChatCompletionRequest) and (
        loaded.by_harmony or request.truncate_prompt_tokens is None
    )
    normalizer = loaded.normalizer if limited else loaded.unlimited
    return normalizer.answer(_asked(loaded, request))


def route_beginning(loaded: LoadedModel, request: ChatCompletionRequest) -> Routing | None:
    """The tokens before the first item, as a prompt of their own; None where they are not known."""
    found = text_prefix(loaded.model, _asked(loaded, request))
    return None if found is None else route_ids(loaded, request, found)


def route_conversation(
    loaded: LoadedModel, request: ResponsesRequest, options: ChatCompletionRequest
) -> Routing:
    """The routing of a request of the Responses API to a model whose chats Harmony renders.

    Args:
        loaded: the model.
        request: the conversation.
        options: those of the request, as a chat has them.

    Raises:
        ApiError: what vLLM refuses; 422: Harmony, or the engine's date, is missing.
    """
    chat = loaded.model.chat
    if isinstance(chat, RefusedChat):
        raise of_reason(Reason.CHAT_RENDERER_UNSUPPORTED, chat.why, model=loaded.name)
    # Harmony is an extra, and slow to import.
    from mmroute.engines.vllm.api.responses_harmony import conversation_ids

    chat = cast("HarmonyChat", chat)
    ids = conversation_ids(request, chat, tool_server=loaded.tool_server).tolist()
    check_output_budget(request, loaded.max_model_len)
    return route_ids(loaded, options, truncated_ids(options, ids, loaded.max_model_len))


def route_prompt(
    loaded: LoadedModel, request: CompletionRequest, prompt: Prompt, *, in_vocabulary: bool
) -> Routing:
    """The routing of a prompt. Token IDs that are given are handed back, as vLLM does it.

    Token IDs are cut as the request asks for it, and texts are not yet.

    Args:
        loaded: the model.
        request: to which the prompt belongs.
        prompt: to encode.
        in_vocabulary: whether token IDs outside the vocabulary are refused here. vLLM's render
            lets them pass, and its engine refuses them: they never have block hashes.

    Raises:
        ApiError: what vLLM refuses.
    """
    lora = loaded.lora(request.model)
    asked = Request(
        add_special_tokens=request.add_special_tokens, cache_salt=request.cache_salt, lora=lora
    )
    if isinstance(prompt, str):
        limited = request.truncate_prompt_tokens is None
        normalizer = loaded.normalizer if limited else loaded.unlimited
        return normalizer.answer(asked._replace(prompt=prompt))
    ids = truncated_ids(request, prompt, loaded.max_model_len)
    if not ids:
        raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered", model=loaded.name)
    if in_vocabulary:
        return loaded.normalizer.answer(asked._replace(prompt_token_ids=ids))
    if max(ids) > MAX_TOKEN_ID:
        message = f"{quoted(max(ids))} is no token ID of any model"
        raise of_reason(Reason.TOKEN_OUT_OF_VOCABULARY, message, model=loaded.name)
    return route_ids(loaded, request, ids)


def route_ids(loaded: LoadedModel, request: RenderRequest, ids: list[int] | TokenIds) -> Routing:
    """The routing of token IDs that are the prompt as they stand.

    Raises:
        ApiError: 400: they are too many.
    """
    if len(ids) > loaded.max_model_len:
        message = f"{len(ids)} tokens do not fit the context of {loaded.max_model_len}"
        raise of_reason(Reason.PROMPT_TOO_LONG, message, model=loaded.name)
    return Routing(
        lora=loaded.lora(request.model),
        cache_salt=request.cache_salt,
        hashing=loaded.model.hashing,
        _token_ids=np.array(ids, dtype=np.uint32),
    )


def chat_offsets(loaded: LoadedModel, request: ChatRequest) -> list[tuple[int, int]] | None:
    """Start and end of each token in the rendered text of a chat, in characters.

    Returns:
        None with items, without a template, and where they are not known.
    """
    if not has_template(loaded):
        return None
    chat, text = rendered_chat(loaded.model, _asked(loaded, request))
    if chat.media or not isinstance(text, str):
        return None
    return loaded.model.tokenizer.offsets(text, add_special_tokens=request.add_special_tokens)


def has_template(loaded: LoadedModel) -> bool:
    """Whether chats are rendered by a template; those that mistral-common encodes are not."""
    return loaded.model.chat.templates is not None


def _asked(loaded: LoadedModel, request: ChatRequest) -> Request:
    kwargs, media = request.chat_template_kwargs or NO_KWARGS, request.media_io_kwargs
    if request.tools == [] and has_template(loaded):
        # There are no tools, and yet the template for requests with tools is taken.
        kwargs = {"tools": [], **kwargs}
    rendered = request if isinstance(request, ChatCompletionRequest) else None
    return Request(
        messages=request.messages,
        tools=request.tools or None,
        # vLLM's /tokenize knows none of these.
        reasoning_effort=rendered.reasoning_effort if rendered else None,
        documents=rendered.documents if rendered else None,
        cache_salt=rendered.cache_salt if rendered else None,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        add_special_tokens=request.add_special_tokens,
        chat_template_kwargs=kwargs,
        mm_processor_kwargs=request.mm_processor_kwargs or NO_KWARGS,
        # vLLM reads over modalities it does not know.
        media_io_kwargs={m: media[m] for m in Modality if m in media} if media else NO_KWARGS,
        lora=loaded.lora(request.model),
        api_fields=_api_fields(rendered) if rendered else NO_KWARGS,
    )


def _api_fields(request: ChatCompletionRequest) -> Mapping[str, Any]:
    if request.response_format is None and not request.tools:  # nor is there a choice of them
        return NO_KWARGS
    fields = {"response_format": request.response_format, "tool_choice": request.tool_choice}
    return {name: value for name, value in fields.items() if value is not None}
