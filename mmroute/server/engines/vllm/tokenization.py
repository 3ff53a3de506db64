"""Answers of ``/tokenize`` and ``/detokenize``.

Source: vLLM ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.bodies.errors import unsupported_field
from mmroute.engines.vllm.message_schema import LateParts, check_message, schema_skips_parts
from mmroute.errors import InexactError
from mmroute.server.api import Reply
from mmroute.server.api_errors import bad_request, require
from mmroute.server.engines.vllm.bodies.tokenization import (
    CountedMessage,
    DetokenizeRequest,
    TokenizeCompletionRequest,
    TokenizeRequest,
)
from mmroute.server.engines.vllm.chats import exact_chat
from mmroute.server.engines.vllm.model import Call
from mmroute.token_ids import MAX_TOKEN_ID

_PROMPTS: Final = frozenset({"prompt", "messages"})


def tokenize(request: TokenizeRequest, call: Call) -> Reply:
    """The answer of ``/tokenize``."""
    _check_one_prompt(request, call)
    rules = call.model.chats
    if isinstance(request, TokenizeCompletionRequest):
        try:
            ids = call.model.model.tokenizer.encode(
                request.prompt, add_special_tokens=request.add_special_tokens
            )
        except ValueError as error:  # half of a surrogate pair
            raise bad_request(str(error)) from None
        return _tokenized(Routing(_token_ids=ids), call, spelt=request.return_token_strs)
    if rules.harmony:
        request.messages = [_copied(message) for message in request.messages]
    elif not rules.templated and any(map(_has_late_calls, request.messages)):
        raise unsupported_field(
            "messages: the engine fails here with tool calls beside a content of null, and of "
            "empty lists of them; count the chat with /v1/chat/completions/render"
        )
    routing = exact_chat(request, call, limited=False)
    return _tokenized(routing, call, spelt=request.return_token_strs)


def detokenize(request: DetokenizeRequest, call: Call) -> Reply:
    """The text, with special tokens. IDs outside the vocabulary have no text."""
    highest = max(request.tokens, default=0)
    require(highest <= MAX_TOKEN_ID, "number too large to fit in target type")
    tokenizer = call.model.model.tokenizer
    known = [token_id for token_id in request.tokens if token_id <= tokenizer.max_token_id]
    return Reply({"prompt": tokenizer.decode(known)})


def _copied(message: CountedMessage) -> CountedMessage:
    """A message as Harmony gets it, without the nulls that the API's schema takes.

    Source: vLLM ``entrypoints/serve/tokenize/protocol.py`` (`to_chat_completion_request`).
    """
    if message.get("content") is None:
        return message
    if schema_skips_parts(_checked(message)):
        raise unsupported_field(
            "messages: the engine loses parts here that its schema leaves to be read later; count "
            "the chat with /v1/chat/completions/render"
        )
    return cast(
        "CountedMessage",
        {field: value for field, value in message.items() if value is not None or field == "name"},
    )


def _has_late_calls(message: Mapping[str, Any]) -> bool:
    """Whether the API's schema leaves the calls of a message to be read later, if there are any.

    No other route leaves them so, and mistral-common takes only a list.
    """
    return isinstance(_checked(message).get("tool_calls"), LateParts)


def _checked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as the API's schema makes it; empty if that refuses it, which is said later."""
    try:
        return check_message(message, 0)
    except InexactError:
        return {}


def _check_one_prompt(request: TokenizeRequest, call: Call) -> None:
    if call.options.strict and not _PROMPTS.isdisjoint(request.model_extra or ()):
        raise bad_request("Give `prompt` or `messages`, not both (--strict).", "prompt")


def _tokenized(routing: Routing, call: Call, *, spelt: bool | None) -> Reply:
    """The answer with these token IDs. Only the render routes have a limit for their number."""
    tokens, tokenizer, texts = routing.token_ids, call.model.model.tokenizer, None
    if spelt:
        texts = [tokenizer.token(token_id) or "" for token_id in tokens.tolist()]
    body = {
        "count": len(tokens),
        "max_model_len": call.model.max_model_len,
        "tokens": tokens,
        "token_strs": texts,
    }
    return Reply(body, [routing])
