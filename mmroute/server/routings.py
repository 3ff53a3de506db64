"""What the server asks of a loaded model. Nothing else in this package calls a normalizer.

Source: vLLM 0.33.0 ``renderers/online_renderer.py``, ``entrypoints/openai/completion/protocol.py``
and ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from mmroute.engines.vllm.refused_chat import RefusedChat
from mmroute.errors import Reason, quoted
from mmroute.items import Modality
from mmroute.request import Request
from mmroute.routing import Routing
from mmroute.server.errors import of_reason
from mmroute.server.loading import LoadedModel
from mmroute.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    RenderRequest,
    TokenizeChatRequest,
)
from mmroute.server.responses_protocol import ResponsesRequest
from mmroute.server.sampling import check_output_budget
from mmroute.server.text_prefix import rendered_chat, text_prefix
from mmroute.server.truncation import Truncation

if TYPE_CHECKING:
    from mmroute.engines.vllm.harmony_chat import HarmonyChat

__all__ = [
    "MAX_TOKEN_ID",
    "ChatRequest",
    "Prompt",
    "chat_offsets",
    "has_template",
    "prompt_offsets",
    "route_beginning",
    "route_chat",
    "route_conversation",
    "route_ids",
    "route_prompt",
]

ChatRequest: TypeAlias = ChatCompletionRequest | TokenizeChatRequest
Prompt: TypeAlias = str | list[int]
"""A prompt of a completion: a text, or token IDs."""
Offsets: TypeAlias = list[tuple[int, int]]
"""Start and end of each token, in characters."""

MAX_TOKEN_ID: Final = 2**32 - 1


def route_chat(
    loaded: LoadedModel, request: ChatRequest, cache_salt: str | None = None, *, limited: bool
) -> Routing:
    """The routing of a chat.

    Args:
        loaded: the model.
        request: the chat.
        cache_salt: enters block hashes.
        limited: whether a prompt longer than the context is refused.
    """
    normalizer = loaded.normalizer if limited else loaded.unlimited
    return normalizer.answer(_asked(loaded, request, cache_salt))


def route_beginning(
    loaded: LoadedModel, request: ChatRequest, cache_salt: str | None
) -> Routing | None:
    """The tokens before the first image, as a prompt of their own; None where nobody can say."""
    found = text_prefix(loaded.model, _asked(loaded, request, cache_salt))
    if found is None:
        return None
    return Routing(
        lora=loaded.lora(request.model),
        cache_salt=cache_salt,
        hashing=loaded.model.hashing,
        _token_ids=found,
    )


def route_conversation(
    loaded: LoadedModel, request: ResponsesRequest, truncation: Truncation | None
) -> Routing:
    """The routing of a request of the Responses API to a model of Harmony.

    Raises:
        ApiError: what vLLM refuses; 422: Harmony, or the engine's date, is missing.
    """
    chat = loaded.model.chat
    if isinstance(chat, RefusedChat):
        raise of_reason(Reason.CHAT_RENDERER_UNSUPPORTED, chat.why, model=loaded.name)
    # Harmony is an extra, and slow to import.
    from mmroute.server.responses_harmony import conversation_ids

    chat = cast("HarmonyChat", chat)
    ids = conversation_ids(request, chat, tool_server=loaded.tool_server).tolist()
    check_output_budget(request, loaded.max_model_len)
    if truncation is not None:
        ids = truncation.of_ids(ids, loaded.max_model_len)
    return route_ids(loaded, request, ids)


def route_prompt(
    loaded: LoadedModel,
    request: CompletionRequest,
    prompt: Prompt,
    truncation: Truncation | None,
    *,
    in_vocabulary: bool,
) -> Routing:
    """The routing of a prompt. Token IDs that are given are handed back, as vLLM does it.

    Args:
        loaded: the model.
        request: to which the prompt belongs.
        prompt: to encode.
        truncation: of the request.
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
        normalizer = loaded.normalizer if truncation is None else loaded.unlimited
        return normalizer.answer(asked._replace(prompt=prompt))
    ids = prompt
    if truncation is not None:
        ids = truncation.of_ids(ids, loaded.max_model_len)
    if not ids:
        raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered", model=loaded.name)
    if in_vocabulary:
        return loaded.normalizer.answer(asked._replace(prompt_token_ids=ids))
    if max(ids) > MAX_TOKEN_ID:
        message = f"{quoted(max(ids))} is no token ID of any model"
        raise of_reason(Reason.TOKEN_OUT_OF_VOCABULARY, message, model=loaded.name)
    return route_ids(loaded, request, ids)


def route_ids(
    loaded: LoadedModel, request: RenderRequest | ResponsesRequest, ids: list[int]
) -> Routing:
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


def prompt_offsets(
    loaded: LoadedModel, request: CompletionRequest, prompt: Prompt
) -> Offsets | None:
    """Where in a text each token stands; None for token IDs, and where nobody can say."""
    if not isinstance(prompt, str):
        return None
    specials = request.add_special_tokens
    return loaded.model.tokenizer.offsets(prompt, add_special_tokens=specials)


def chat_offsets(loaded: LoadedModel, request: ChatRequest) -> Offsets | None:
    """The same in the rendered text of a chat without items."""
    chat, text = rendered_chat(loaded.model, _asked(loaded, request, None))
    if chat.media or not isinstance(text, str):
        return None
    return loaded.model.tokenizer.offsets(text, add_special_tokens=request.add_special_tokens)


def has_template(loaded: LoadedModel) -> bool:
    """Whether chats are rendered by a template; what mistral-common encodes has none."""
    return loaded.model.chat.templates is not None


def _by_modality(kwargs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without those of modalities that vLLM does not know, and leaves alone."""
    return {name: kwargs[name] for name in Modality if name in kwargs} if kwargs else kwargs


def _asked(loaded: LoadedModel, request: ChatRequest, cache_salt: str | None) -> Request:
    kwargs = request.chat_template_kwargs or {}
    if request.tools == [] and has_template(loaded):
        # None, and yet the template for requests with tools is taken.
        kwargs = {"tools": [], **kwargs}
    rendered = request if isinstance(request, ChatCompletionRequest) else None
    names = ("response_format", "tool_choice") if rendered else ()
    return Request(
        messages=request.messages,
        tools=request.tools or None,
        # vLLM's /tokenize knows neither.
        reasoning_effort=rendered.reasoning_effort if rendered else None,
        documents=rendered.documents if rendered else None,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        add_special_tokens=request.add_special_tokens,
        chat_template_kwargs=kwargs,
        mm_processor_kwargs=request.mm_processor_kwargs or {},
        media_io_kwargs=_by_modality(request.media_io_kwargs or {}),
        cache_salt=cache_salt,
        lora=loaded.lora(request.model),
        api_fields={
            name: value for name in names if (value := getattr(rendered, name)) is not None
        },
    )
