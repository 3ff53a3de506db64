"""Bodies of the Anthropic Messages API as SGLang declares them, for pydantic to judge by.

Source: SGLang 0.5.23 ``srt/entrypoints/anthropic/protocol.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

_LEAST_BUDGET: Final = 1024


class _Text(BaseModel):
    type: Literal["text"]
    text: str


class _Image(BaseModel):
    type: Literal["image"]
    source: dict[str, Any] | str | None = None


class _ToolUse(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(default_factory=dict)


class _ToolResult(BaseModel):
    type: Literal["tool_result"]
    tool_use_id: str | None = None
    id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class _ToolReference(BaseModel):
    type: Literal["tool_reference"]
    name: str | None = None
    tool_name: str | None = None
    id: str | None = None


class _SearchResult(BaseModel):
    type: Literal["search_result"]
    source: str | dict[str, Any] | None = None
    title: str | None = None
    content: list[dict[str, Any]] | None = None


class _Thinking(BaseModel):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class _Redacted(BaseModel):
    type: Literal["redacted_thinking"]
    data: str | None = None


Block = Annotated[
    _Text
    | _Image
    | _ToolUse
    | _ToolResult
    | _ToolReference
    | _SearchResult
    | _Thinking
    | _Redacted,
    Field(discriminator="type"),
]


class Message(BaseModel):
    """A turn of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class CustomTool(BaseModel):
    """A tool that the client runs."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool = False
    defer_loading: bool | None = None

    @field_validator("input_schema")
    @classmethod
    def _typed(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return schema if "type" in schema else {**schema, "type": "object"}


class _ServerTool(BaseModel):
    description: str | None = None
    defer_loading: bool | None = None


class _WebSearch(_ServerTool):
    type: str = Field(pattern=r"^web_search_\d{8}$")
    name: Literal["web_search"] = "web_search"
    max_uses: int | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class _Computer(_ServerTool):
    type: str = Field(pattern=r"^computer_\d{8}$")
    name: Literal["computer"] = "computer"
    display_width_px: int | None = None
    display_height_px: int | None = None
    display_number: int | None = None


class _Bash(_ServerTool):
    type: str = Field(pattern=r"^bash_\d{8}$")
    name: Literal["bash"] = "bash"


class _TextEditor(_ServerTool):
    type: str = Field(pattern=r"^text_editor_\d{8}$")
    name: Literal["str_replace_editor", "str_replace_based_edit_tool"]


class Choice(BaseModel):
    """Which tool is called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class _ThinkingParam(BaseModel):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None

    @model_validator(mode="after")
    def _budgeted(self) -> Self:
        if self.type == "enabled" and (
            self.budget_tokens is None or self.budget_tokens < _LEAST_BUDGET
        ):
            raise ValueError(f"budget_tokens must be {_LEAST_BUDGET} or more")
        if self.type != "enabled" and self.budget_tokens is not None:
            raise ValueError(f"budget_tokens is not allowed where the type is {self.type}")
        if self.type == "disabled" and self.display is not None:
            raise ValueError("display is not allowed where the type is disabled")
        return self


class _TaskBudget(BaseModel):
    type: Literal["tokens"]
    total: int = Field(gt=0)
    remaining: int | None = Field(default=None, ge=0)


class _Format(BaseModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class _OutputConfig(BaseModel):
    effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    task_budget: _TaskBudget | None = None
    format: _Format | None = None


class CountedMessages(BaseModel):
    """A body whose tokens are counted."""

    model: str = Field(min_length=1)
    messages: list[Message]
    system: str | list[Block] | None = None
    thinking: _ThinkingParam | None = None
    tool_choice: Choice | None = None
    tools: list[CustomTool | _WebSearch | _Computer | _Bash | _TextEditor] | None = None
    output_config: _OutputConfig | None = None
    betas: list[str] | None = None


class Messages(CountedMessages):
    """A body of the API."""

    max_tokens: int = Field(gt=0)
    metadata: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
