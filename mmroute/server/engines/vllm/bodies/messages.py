"""Requests of the Anthropic Messages API: ``/v1/messages/render``, ``/v1/messages/count_tokens``.

Source: vLLM ``entrypoints/anthropic/protocol.py`` and ``entrypoints/anthropic/serving.py``
(`AnthropicServingMessages`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field

from mmroute.engines.vllm.bodies.chat_completion import ChatCompletionRequest
from mmroute.engines.vllm.bodies.errors import unsupported_field
from mmroute.engines.vllm.bodies.fields import (
    ChatCompletionNamedFunction,
    ChatCompletionNamedToolChoiceParam,
    ExtraArgs,
    MmPayload,
    StreamOptions,
)
from mmroute.engines.vllm.bodies.request_checks import before_fields, use_mm_kwargs_alias
from mmroute.server.engines.vllm.bodies.chat_parts import function_tool
from mmroute.server.engines.vllm.bodies.messages_chat import messages_of, system_text, tools_after
from mmroute.server.engines.vllm.bodies.messages_protocol import (
    AnthropicMessage,
    AnthropicOutputConfig,
    AnthropicThinking,
    AnthropicTool,
    AnthropicToolChoice,
    Content,
    check_no_tool_changes,
)
from mmroute.server.engines.vllm.bodies.messages_rules import DISABLED_EFFORT_OPTION, MessagesRules

_CHOICES: Final[Mapping[str, Literal["auto", "required", "none"]]] = {
    "auto": "auto", "any": "required", "none": "none",
}  # fmt: skip
_COPIED: Final = (
    "model", "max_tokens", "temperature", "top_p", "top_k", "watermarking", "cache_salt",
    "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "chat_template_kwargs", "mm_payload",
)  # fmt: skip


def _check_model(model: str) -> str:
    if not model:
        raise ValueError("Model is required")
    return model


_Model: TypeAlias = Annotated[str, AfterValidator(_check_model)]
_System: TypeAlias = Annotated[Content | None, AfterValidator(check_no_tool_changes)]


class AnthropicCountTokensRequest(BaseModel):
    """Body of ``/v1/messages/count_tokens``."""

    model: _Model
    messages: list[AnthropicMessage]
    output_config: AnthropicOutputConfig | None = None
    system: _System = None
    thinking: AnthropicThinking | None = None
    tool_choice: AnthropicToolChoice | None = None
    tools: list[AnthropicTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def to_chat(self, rules: MessagesRules) -> ChatCompletionRequest:
        """The chat that vLLM makes of the request."""
        request = AnthropicMessagesRequest.model_construct(max_tokens=None, **dict(self))
        return request.to_chat(rules)


class AnthropicMessagesRequest(AnthropicCountTokensRequest):
    """Body of ``/v1/messages/render``."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    mm_payload: MmPayload = "tensors"
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    watermarking: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: ExtraArgs = None

    _check_first = before_fields(use_mm_kwargs_alias)

    def to_chat(self, rules: MessagesRules) -> ChatCompletionRequest:
        """The chat that vLLM makes of the request."""
        chat = ChatCompletionRequest(
            messages=[*self._system_message(rules), *messages_of(self.messages, rules)],
            max_completion_tokens=self.max_tokens,
            stop=self.stop_sequences,
            **{name: getattr(self, name) for name in _COPIED},
        )
        if self.stream:
            chat.stream = True
            chat.stream_options = StreamOptions(include_usage=True, continuous_usage_stats=True)
        self._set_output(chat, rules)
        self._set_tools(chat)
        return chat

    def _system_message(self, rules: MessagesRules) -> Iterator[dict[str, Any]]:
        texts = []
        if isinstance(self.system, str):
            texts.append(self.system)
        elif self.system is not None:
            texts.append(system_text(self.system))
        if rules.merges_system:
            texts += [system_text(m.content) for m in self.messages if m.role == "system"]
        if any(texts):
            yield {"role": "system", "content": "".join(texts)}

    def _set_output(self, chat: ChatCompletionRequest, rules: MessagesRules) -> None:
        config, thinking = self.output_config, self.thinking
        if config is not None and config.format is not None and config.format.get("schema"):
            schema = {"name": "json_schema", "schema": config.format["schema"]}
            chat.response_format = {"type": "json_schema", "json_schema": schema}
        if config is not None and config.effort is not None:
            chat.reasoning_effort = config.effort
        if thinking is None:
            return
        if thinking.type == "enabled":
            chat.thinking_token_budget = thinking.budget_tokens
        elif thinking.type == "disabled":
            if rules.disabled_effort is None:
                raise unsupported_field(
                    f"thinking: the engine's {DISABLED_EFFORT_OPTION} decides what a model "
                    "without thinking is told, and it is not covered",
                )
            chat.reasoning_effort = rules.disabled_effort

    def _set_tools(self, chat: ChatCompletionRequest) -> None:
        choice, tools = self.tool_choice, tools_after(self.messages, self.tools)
        if choice is None:
            chat.tool_choice = None if tools is None else "auto"
        else:
            chat.parallel_tool_calls = not choice.disable_parallel_tool_use
            chat.tool_choice = _CHOICES.get(choice.type) or ChatCompletionNamedToolChoiceParam(
                function=ChatCompletionNamedFunction(name=choice.name or "")
            )
        if tools is not None:
            chat.tools = [
                function_tool(tool.name, {**tool.model_dump(), "parameters": tool.input_schema})
                for tool in tools
            ]
