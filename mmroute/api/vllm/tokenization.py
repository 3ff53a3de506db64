"""``/tokenize`` and ``/detokenize``.

Source: vLLM ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from mmroute.answering.routing import Routing
from mmroute.api.vllm.answers import DetokenizeResponse, TokenizeResponse
from mmroute.api.vllm.call import Call, Reply
from mmroute.api.vllm.chats import exact_chat, request_of
from mmroute.api.vllm.cost import Cost, cost_of_chat
from mmroute.api.vllm.errors import bad_request, require, unsupported_field
from mmroute.api.vllm.fields import (
    MAX_INT64,
    Open,
    check_messages,
)
from mmroute.api.vllm.request_checks import before_fields, check_generation_prompt
from mmroute.engines.vllm.message_schema import LateParts, check_message, schema_skips_parts
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.errors import InexactError
from mmroute.requests.request import Request
from mmroute.token_ids import MAX_TOKEN_ID

_PROMPTS: Final = frozenset({"prompt", "messages"})


class TokenizeCompletionRequest(Open):
    """Body of ``/tokenize`` with a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False

    def cost(self, size: int) -> Cost:
        return Cost(size)

    def answer(self, call: Call) -> Reply:
        _check_one_prompt(self, call)
        try:
            ids = call.model.model.tokenizer.encode(
                self.prompt, add_special_tokens=self.add_special_tokens
            )
        except ValueError as error:  # half of a surrogate pair
            raise bad_request(str(error)) from None
        return _tokenized(Routing(_token_ids=ids), call, spelt=self.return_token_strs)


@with_config(ConfigDict(extra="allow"))
class _CountedMessage(TypedDict):
    """A message. If a body has a chat and a text, pydantic takes the type with more fields set.

    The fields of messages count among them.
    """

    role: str


class TokenizeChatRequest(Open):
    """Body of ``/tokenize`` with a chat."""

    model: str | None = None
    messages: Annotated[list[_CountedMessage], BeforeValidator(check_messages)]
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    tools: list[ChatCompletionToolsParam] | None = None

    _check_first = before_fields(check_generation_prompt)

    def cost(self, size: int) -> Cost:
        return cost_of_chat(size, self.messages)

    def answer(self, call: Call) -> Reply:
        _check_one_prompt(self, call)
        if call.model.chats.has_conversations:
            self.messages = [_copied(message) for message in self.messages]
        elif call.model.model.chat.templates is None and any(map(_has_late_calls, self.messages)):
            raise unsupported_field(
                "messages: the engine fails here with tool calls beside a content of null, and of "
                "empty lists of them; count the chat with /v1/chat/completions/render"
            )
        routing = exact_chat(self, call, limited=False)
        return _tokenized(routing, call, spelt=self.return_token_strs)

    def to_request(self, loras: Mapping[str, str]) -> Request:
        """The request for a normalizer.

        Args:
            loras: the path of each LoRA adapter, by its name.
        """
        return request_of(self, loras)


class DetokenizeRequest(BaseModel):
    """Body of ``/detokenize``."""

    model: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0, le=MAX_INT64)]], Field(fail_fast=True)]

    def cost(self, size: int) -> Cost:
        return Cost(text=len(self.tokens))

    def answer(self, call: Call) -> Reply:
        """The text, with special tokens. IDs outside the vocabulary have no text."""
        highest = max(self.tokens, default=0)
        require(highest <= MAX_TOKEN_ID, "number too large to fit in target type")
        tokenizer = call.model.model.tokenizer
        known = [token_id for token_id in self.tokens if token_id <= tokenizer.max_token_id]
        body: DetokenizeResponse = {"prompt": tokenizer.decode(known)}
        return Reply(body)


TokenizeRequest: TypeAlias = TokenizeCompletionRequest | TokenizeChatRequest


def _copied(message: _CountedMessage) -> _CountedMessage:
    """A message as Harmony gets it, without the nulls that the API's schema takes.

    Source: vLLM ``entrypoints/serve/tokenize/protocol.py`` (`to_chat_completion_request`).

    Raises:
        ApiError: 422 `unsupported_field`: vLLM loses parts that are to be read later.
    """
    if message.get("content") is None:
        return message
    if schema_skips_parts(_checked(message)):
        raise unsupported_field(
            "messages: the engine loses parts here that its schema leaves to be read later; count "
            "the chat with /v1/chat/completions/render"
        )
    return cast(
        "_CountedMessage",
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
    body: TokenizeResponse = {
        "count": len(tokens),
        "max_model_len": call.model.max_model_len,
        "tokens": tokens,
        "token_strs": texts,
    }
    return Reply(body, [routing])
