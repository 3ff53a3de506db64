"""``/tokenize``, ``/detokenize`` and ``/tokenizer_info``.

Source: vLLM 0.33.0 ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mmroute.model.files import find_model
from mmroute.routing import Routing
from mmroute.server.answers import DetokenizeResponse, TokenizeResponse
from mmroute.server.chats import exact_chat
from mmroute.server.errors import bad_request
from mmroute.server.handling import HandlerContext, HandlerResult, result_of
from mmroute.server.models import ModelSource
from mmroute.server.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeRequest,
)
from mmroute.server.routings import decoded, token_ids_of, token_strings

__all__ = ["detokenize", "tokenize", "tokenizer_info"]

_FILES: Final = ("vocab_file", "merges_file")


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
    tokens = routing.token_ids.tolist()
    body: TokenizeResponse = {
        "count": len(tokens),
        "max_model_len": loaded.max_model_len,
        "tokens": tokens,
        "token_strs": token_strings(loaded, tokens) if request.return_token_strs else None,
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


def tokenizer_info(source: ModelSource) -> dict[str, Any]:
    """``tokenizer_config.json`` as vLLM shows it: added tokens by their texts, no file names."""
    config = find_model(source.model, revision=source.revision).object("tokenizer_config.json")
    shown = {name: _plain(value) for name, value in config.items() if name not in _FILES}
    name = str(config.get("tokenizer_class", "MistralTokenizer")).removesuffix("Fast")
    return {"tokenizer_class": name, **{k: v for k, v in shown.items() if k != "tokenizer_class"}}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        if "content" in value:
            return value["content"]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
