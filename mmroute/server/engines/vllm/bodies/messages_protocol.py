"""The parts of a body of ``/v1/messages/render``, with vLLM's names, defaults and laxness.

Source: vLLM ``entrypoints/anthropic/protocol.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, field_validator, model_validator

AnthropicEffort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]


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
    thinking: str | None = None
    tool: (
        Annotated[
            AnthropicToolChangeReference | AnthropicToolChangeDefinition,
            Field(discriminator="type"),
        ]
        | None
    ) = None

    @property
    def changes_tools(self) -> bool:
        """Whether the block adds or removes a tool in the midst of a conversation."""
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


Content: TypeAlias = str | list[AnthropicContentBlock]


def check_no_tool_changes(content: Content | None) -> Content | None:
    """A content that is not a system message's, unless one of its blocks changes tools."""
    for block in content if isinstance(content, list) else ():
        if block.changes_tools:
            raise ValueError(f'{block.type} blocks are only allowed in messages with role "system"')
    return content


class AnthropicMessage(BaseModel):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: Content

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.role != "system":
            check_no_tool_changes(self.content)
        return self


class AnthropicToolChoice(BaseModel):
    """The tools that may or must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class AnthropicOutputConfig(BaseModel):
    """The options for the form and effort of the answer."""

    effort: AnthropicEffort | None = None
    format: dict[str, Any] | None = None


class AnthropicThinking(BaseModel):
    """Whether the model thinks, and with what budget of tokens."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
