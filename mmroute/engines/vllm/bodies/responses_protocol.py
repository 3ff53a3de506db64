"""Options of a body of ``/v1/responses/render``, with vLLM's names, defaults and laxness.

Source: vLLM ``entrypoints/openai/responses/protocol.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from mmroute.engines.vllm.bodies.fields import Effort, Open


class ToolChoiceAllowed(Open):
    """The tools that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


class ToolChoiceNamed(Open):
    """The tool that must be called."""

    type: Literal["custom", "function"]
    name: str


class ToolChoiceMcp(Open):
    """The server of which a tool must be called."""

    type: Literal["mcp"]
    server_label: str
    name: str | None = None


class ToolChoiceHosted(Open):
    """The tool of the API itself that must be called."""

    type: Literal[
        "apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview",
        "file_search", "image_generation", "programmatic_tool_calling", "shell",
        "web_search_preview", "web_search_preview_2025_03_11",
    ]  # fmt: skip


ToolChoice: TypeAlias = Annotated[
    ToolChoiceAllowed | ToolChoiceNamed | ToolChoiceMcp | ToolChoiceHosted,
    Field(discriminator="type"),
]
"""The tool that must be called, or the tools that may be."""


class Reasoning(BaseModel):
    """The options for the model's reasoning."""

    context: Literal["auto", "current_turn", "all_turns"] | None = None
    effort: Effort | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    mode: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseFormatText(BaseModel):
    """Text."""

    type: Literal["text"]


class ResponseFormatJSONObject(BaseModel):
    """Any JSON object."""

    type: Literal["json_object"]


class ResponseFormatTextJSONSchemaConfig(BaseModel):
    """A JSON object by a schema."""

    name: str
    json_schema: dict[str, Any] = Field(alias="schema")
    type: Literal["json_schema"]
    description: str | None = None
    strict: bool | None = None


class TextConfig(BaseModel):
    """The form of the answer."""

    format: (
        ResponseFormatText | ResponseFormatTextJSONSchemaConfig | ResponseFormatJSONObject | None
    ) = None
    verbosity: Literal["low", "medium", "high"] | None = None


class PromptCacheOptions(BaseModel):
    """Options of the prompt cache, which vLLM ignores."""

    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: Literal["30m"] = "30m"
    comparison_response_id: str | None = None
    prewarm: bool | None = None
