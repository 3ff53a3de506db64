"""Options of a body of ``/v1/responses/render``, with vLLM's names, defaults and laxness.

Source: vLLM ``entrypoints/openai/responses/protocol.py``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from mmroute.api.vllm.fields import Effort, Open


class ToolChoice(Open):
    """The tool that must be called, or the tools that may be."""

    type: Literal[
        "allowed_tools", "apply_patch", "code_interpreter", "computer", "computer_use",
        "computer_use_preview", "custom", "file_search", "function", "image_generation", "mcp",
        "programmatic_tool_calling", "shell", "web_search_preview",
        "web_search_preview_2025_03_11",
    ]  # fmt: skip


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
