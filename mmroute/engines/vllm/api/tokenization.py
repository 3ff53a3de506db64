"""``/tokenize`` and ``/detokenize``.

Source: vLLM 0.33.0 ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.api.answers import DetokenizeResponse, TokenizeResponse
from mmroute.engines.vllm.api.chats import exact_chat
from mmroute.engines.vllm.api.errors import bad_request, require
from mmroute.engines.vllm.api.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeRequest,
)
from mmroute.engines.vllm.api.routings import MAX_TOKEN_ID
from mmroute.server.handling import HandlerContext, HandlerResult, result_of


def tokenize(request: TokenizeRequest, context: HandlerContext) -> HandlerResult:
    """Token IDs of a text or a chat; however long: only the render routes have a limit."""
    if context.settings.strict and not {"prompt", "messages"}.isdisjoint(request.model_extra or ()):
        raise bad_request("Give `prompt` or `messages`, not both (--strict).", "prompt")
    loaded = context.models.find(request.model)
    if isinstance(request, TokenizeChatRequest):
        routing = exact_chat(loaded, request, context.settings)
    else:
        try:
            ids = loaded.model.tokenizer.encode(
                request.prompt, add_special_tokens=request.add_special_tokens
            )
        except ValueError as error:  # half of a surrogate pair
            raise bad_request(str(error)) from None
        routing = Routing(_token_ids=ids)
    tokens, spelt = routing.token_ids, None
    if request.return_token_strs:
        spelt = [loaded.model.tokenizer.token(token_id) or "" for token_id in tokens.tolist()]
    body: TokenizeResponse = {
        "count": len(tokens),
        "max_model_len": loaded.max_model_len,
        "tokens": tokens,
        "token_strs": spelt,
    }
    return result_of(loaded, body, [routing])


def detokenize(request: DetokenizeRequest, context: HandlerContext) -> HandlerResult:
    """The text of token IDs, special tokens included; IDs outside the vocabulary have none."""
    loaded, ids = context.models.find(request.model), request.tokens
    require(max(ids, default=0) <= MAX_TOKEN_ID, "number too large to fit in target type")
    tokenizer = loaded.model.tokenizer
    known = [token_id for token_id in ids if token_id <= tokenizer.max_token_id]
    body: DetokenizeResponse = {"prompt": tokenizer.decode(known)}
    return result_of(loaded, body)
