"""``/tokenize`` and ``/detokenize``.

Source: vLLM ``entrypoints/serve/tokenize``, and its answers as observed.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from mmroute.engines.vllm.bodies.chats import request_of
from mmroute.engines.vllm.bodies.fields import MAX_INT64, Open, check_messages
from mmroute.engines.vllm.bodies.request_checks import before_fields, check_generation_prompt
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.requests.request import Request


class TokenizeCompletionRequest(Open):
    """Body of ``/tokenize`` with a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


@with_config(ConfigDict(extra="allow"))
class CountedMessage(TypedDict):
    """A message. If a body has a chat and a text, pydantic takes the type with more fields set.

    The fields of messages count among them.
    """

    role: str


class TokenizeChatRequest(Open):
    """Body of ``/tokenize`` with a chat."""

    model: str | None = None
    messages: Annotated[list[CountedMessage], BeforeValidator(check_messages)]
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

    def to_request(self) -> Request:
        """The request for a normalizer."""
        return request_of(self)


class DetokenizeRequest(BaseModel):
    """Body of ``/detokenize``."""

    model: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0, le=MAX_INT64)]], Field(fail_fast=True)]


TokenizeRequest: TypeAlias = TokenizeCompletionRequest | TokenizeChatRequest
