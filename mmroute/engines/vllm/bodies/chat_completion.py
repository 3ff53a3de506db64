"""Chats: ``/v1/chat/completions/render``.

Source: vLLM ``entrypoints/openai/chat_completion/protocol.py``,
``entrypoints/scale_out/render/serving.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from mmroute.engines.vllm.bodies.chats import request_of
from mmroute.engines.vllm.bodies.fields import (
    ChatCompletionNamedToolChoiceParam,
    Effort,
    GenerationRequest,
    Messages,
    TopLogprobs,
)
from mmroute.engines.vllm.bodies.request_checks import before_fields, check_chat
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.requests.request import NO_KWARGS, Request


class ChatCompletionRequest(GenerationRequest):
    """Body of ``/v1/chat/completions/render``."""

    messages: Messages
    logprobs: bool | None = False
    top_logprobs: TopLogprobs = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    tools: list[ChatCompletionToolsParam] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChatCompletionNamedToolChoiceParam | None = (
        "none"
    )
    reasoning_effort: Effort | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None

    _check_first = before_fields(check_chat)

    @property
    def prompt_scores(self) -> int | None:
        if self.prompt_logprobs is None and self.echo:
            return self.top_logprobs or 0  # which the Rust frontend may be sent as null
        return self.prompt_logprobs

    def to_request(self) -> Request:
        """The request for a normalizer. It has the fields that a server may not trust, too."""
        return request_of(
            self,
            reasoning_effort=self.reasoning_effort,
            documents=self.documents,
            cache_salt=self.cache_salt,
            reads_cache=self.reads_cache,
            api_fields=self._api_fields(),
        )

    def plain_tool_choice(self) -> Any:
        """`tool_choice` as JSON."""
        choice = self.tool_choice
        return choice.model_dump() if isinstance(choice, BaseModel) else choice

    def _api_fields(self) -> Mapping[str, Any]:
        fields = {"chat_template": self.chat_template, "response_format": self.response_format}
        if self.tools or self.response_format is not None:
            fields["tool_choice"] = self.plain_tool_choice()
        return {name: value for name, value in fields.items() if value is not None} or NO_KWARGS
