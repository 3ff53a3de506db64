"""``/tokenize`` and ``/detokenize``.

Source: vLLM 0.33.0 ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from mmroute.routing import Routing
from mmroute.server.answers import DetokenizeResponse, TokenizeResponse
from mmroute.server.chats import exact_chat
from mmroute.server.errors import bad_request
from mmroute.server.handling import HandlerContext, HandlerResult, result_of
from mmroute.server.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeRequest,
)
from mmroute.server.routings import decoded, token_ids_of, token_strings

__all__ = ["detokenize", "tokenize"]


def tokenize(request: TokenizeRequest, context: HandlerContext) -> HandlerResult:
    """Token IDs of a text or a chat; however long: only the render routes have a limit.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    if context.settings.strict and not {"prompt", "messages"}.isdisjoint(request.model_extra or ()):
        raise bad_request("Give `prompt` or `messages`, not both (--strict).", "prompt")
    loaded = context.models.find(request.model)
    if isinstance(request, TokenizeChatRequest):
        routing = exact_chat(loaded, request, context.settings, limited=False)
    else:
        ids = token_ids_of(loaded, request.prompt, add_special_tokens=request.add_special_tokens)
        routing = Routing(_token_ids=ids)
    tokens = routing.token_ids
    body: TokenizeResponse = {
        "count": len(tokens),
        "max_model_len": loaded.max_model_len,
        "tokens": tokens,
        "token_strs": token_strings(loaded, tokens.tolist()) if request.return_token_strs else None,
    }
    return result_of(loaded, body, [routing])


def detokenize(request: DetokenizeRequest, context: HandlerContext) -> HandlerResult:
    """The text of token IDs, special tokens included; IDs outside the vocabulary have none.

    Raises:
        ApiError: 400, 404.
    """
    loaded = context.models.find(request.model)
    body: DetokenizeResponse = {"prompt": decoded(loaded, request.tokens)}
    return result_of(loaded, body)
