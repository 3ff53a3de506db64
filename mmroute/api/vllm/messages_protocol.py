"""The body of ``/v1/messages/render``, with vLLM's names, defaults, laxness and order of fields.

Source: vLLM ``entrypoints/anthropic/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, field_validator, model_validator

from mmroute.api.vllm.call import Call, Reply
from mmroute.api.vllm.cost import Cost, cost_beside_files, typed_parts
from mmroute.api.vllm.fields import ExtraArgs, MmPayload
from mmroute.api.vllm.request_checks import before_fields, use_mm_kwargs_alias

AnthropicEffort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
_Display: TypeAlias = Literal["summarized", "omitted", "updates"]


class AnthropicTool(BaseModel):
    """A tool that a model may call."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    defer_loading: bool | None = None

    @field_validator("input_schema")
    @classmethod
    def _with_type(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return schema if "type" in schema else {**schema, "type": "object"}


class AnthropicToolChangeReference(BaseModel):
    """A tool by its name."""

    type: Literal["tool_reference"]
    name: str


class AnthropicToolChangeDefinition(BaseModel):
    """A tool that is defined in the midst of a conversation."""

    type: Literal["tool_definition"]
    definition: AnthropicTool


class AnthropicContentBlock(BaseModel):
    """A part of a message's content."""

    type: Literal[
        "text", "image", "tool_use", "tool_result", "tool_reference", "thinking",
        "redacted_thinking", "tool_addition", "tool_removal",
    ]  # fmt: skip
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    tool_name: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    tool: (
        Annotated[
            AnthropicToolChangeReference | AnthropicToolChangeDefinition,
            Field(discriminator="type"),
        ]
        | None
    ) = None

    @property
    def changes_tools(self) -> bool:
        """Whether it adds or removes a tool in the midst of a conversation."""
        return self.type in ("tool_addition", "tool_removal")

    @model_validator(mode="after")
    def _check_tool_change(self) -> Self:
        if not self.changes_tools:
            return self
        if self.tool is None:
            raise ValueError(f"tool is required for {self.type} blocks")
        if self.type == "tool_removal" and self.tool.type != "tool_reference":
            raise ValueError("tool_removal only accepts a tool_reference")
        return self


_Content: TypeAlias = str | list[AnthropicContentBlock]


def _check_no_tool_changes(content: _Content | None) -> None:
    for block in content if isinstance(content, list) else ():
        if block.changes_tools:
            raise ValueError(f'{block.type} blocks are only allowed in messages with role "system"')


class AnthropicMessage(BaseModel):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: _Content

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.role != "system":
            _check_no_tool_changes(self.content)
        return self


class AnthropicToolChoice(BaseModel):
    """Which tools may be called, or must be."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.type == "tool" and not self.name:
            raise ValueError("tool_choice.name is required when type is 'tool'")
        return self


class AnthropicJsonOutputFormat(BaseModel):
    """A JSON schema of the answer."""

    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    type: Literal["json_schema"] = "json_schema"


class AnthropicOutputConfig(BaseModel):
    """How the model is to answer."""

    effort: AnthropicEffort | None = None
    format: AnthropicJsonOutputFormat | None = None


class AnthropicThinkingConfigEnabled(BaseModel):
    """Thinking, with a budget of tokens."""

    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1024)
    display: _Display | None = None


class AnthropicThinkingConfigDisabled(BaseModel):
    """No thinking."""

    type: Literal["disabled"]


class AnthropicThinkingConfigAdaptive(BaseModel):
    """Thinking as long as the model decides."""

    type: Literal["adaptive"]
    display: _Display | None = None


_Thinking: TypeAlias = Annotated[
    AnthropicThinkingConfigEnabled
    | AnthropicThinkingConfigDisabled
    | AnthropicThinkingConfigAdaptive,
    Field(discriminator="type"),
]


class AnthropicMessagesRequest(BaseModel):
    """Body of ``/v1/messages/render``."""

    model: str
    messages: list[AnthropicMessage]
    max_tokens: int
    metadata: dict[str, Any] | None = None
    output_config: AnthropicOutputConfig | None = None
    thinking: _Thinking | None = None
    stop_sequences: Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool | None = False
    system: _Content | None = None
    temperature: float | None = None
    tool_choice: AnthropicToolChoice | None = None
    tools: list[AnthropicTool] | None = None
    top_k: int | None = None
    top_p: float | None = None
    mm_payload: MmPayload = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    watermarking: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: ExtraArgs = None
    chat_template_kwargs: dict[str, Any] | None = None

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        if not model:
            raise ValueError("Model is required")
        return model

    @field_validator("max_tokens")
    @classmethod
    def _check_max_tokens(cls, most: int) -> int:
        if most <= 0:
            raise ValueError("max_tokens must be positive")
        return most

    @field_validator("system")
    @classmethod
    def _check_system(cls, system: _Content | None) -> _Content | None:
        _check_no_tool_changes(system)
        return system

    _check_first = before_fields(use_mm_kwargs_alias)

    def cost(self, size: int) -> Cost:
        sources = list(self._sources())
        urls = [source.get("url") for source in sources if source.get("type") == "url"]
        base64 = [source.get("data") for source in sources if source.get("type") != "url"]
        return cost_beside_files(size, urls, base64)

    def answer(self, call: Call) -> Reply:
        return call.model.chat_of_messages(self).answer(call)

    def _sources(self) -> Iterator[dict[str, Any]]:
        for message in self.messages:
            for block in message.content if isinstance(message.content, list) else ():
                found = [block.source] if block.type == "image" else []
                if block.type == "tool_result" and message.role == "user":
                    found = [item.get("source") for item in typed_parts(block.content, "image")]
                yield from (source for source in found if isinstance(source, dict))

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        prefill = (self.kv_transfer_params or {}).get("do_remote_decode")
        thinking = self.thinking
        if not isinstance(thinking, AnthropicThinkingConfigEnabled) or prefill:
            return self
        if thinking.budget_tokens >= self.max_tokens:
            raise ValueError("thinking.budget_tokens must be less than max_tokens")
        return self
