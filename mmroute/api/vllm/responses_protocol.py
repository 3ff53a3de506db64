"""The body of ``/v1/responses/render``, with vLLM's names, defaults, laxness and order of fields.

Source: vLLM ``entrypoints/openai/responses/protocol.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from mmroute.api.vllm.call import Call, Reply
from mmroute.api.vllm.cost import Cost, cost_beside_files, typed_parts
from mmroute.api.vllm.fields import (
    Effort,
    ExtraArgs,
    Int64,
    Integers,
    MmPayload,
    Open,
    Stop,
    StructuredOutputsParams,
    TopLogprobs,
)
from mmroute.api.vllm.request_checks import before_fields, check_responses
from mmroute.api.vllm.responses_items import Item, Tool


class ToolChoice(Open):
    """Which tool must be called, or which may."""

    type: Literal[
        "allowed_tools", "apply_patch", "code_interpreter", "computer", "computer_use",
        "computer_use_preview", "custom", "file_search", "function", "image_generation", "mcp",
        "programmatic_tool_calling", "shell", "web_search_preview",
        "web_search_preview_2025_03_11",
    ]  # fmt: skip


class Reasoning(BaseModel):
    """How much the model is to think."""

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


class ResponsesRequest(BaseModel):
    """Body of ``/v1/responses/render``."""

    background: bool | None = False
    include: (
        list[
            Literal[
                "code_interpreter_call.outputs", "computer_call_output.output.image_url",
                "file_search_call.results", "message.input_image.image_url",
                "message.output_text.logprobs", "reasoning.encrypted_content",
            ]
        ]
        | None
    ) = None  # fmt: skip
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    logit_bias: dict[str, float] | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    reasoning: Reasoning | None = None
    include_reasoning: bool = True
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] = "auto"
    store: bool | None = True
    stream: bool | None = False
    temperature: float | None = None
    text: TextConfig | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice = "auto"
    tools: list[Tool] = Field(default_factory=list)
    top_logprobs: TopLogprobs = 0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    user: str | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    presence_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    frequency_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: (
        Annotated[
            Literal["in_memory", "24h"],
            BeforeValidator(lambda value: "in_memory" if value == "in-memory" else value),
        ]
        | None
    ) = None
    safety_identifier: str | None = None
    watermarking: bool | None = None
    request_id: str = ""
    session_id: str | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    priority: Int64 = 0
    mm_payload: MmPayload = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    enable_response_messages: bool = False
    previous_input_messages: list[dict[str, Any]] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    repetition_penalty: float | None = None
    seed: Int64 | None = None
    stop: Stop = None
    stop_token_ids: Integers | None = None
    ignore_eos: bool = False
    vllm_xargs: ExtraArgs = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    _check_first = before_fields(check_responses)

    def cost(self, size: int) -> Cost:
        items = self.input if isinstance(self.input, list) else ()
        parts = [
            part
            for item in items
            for part in typed_parts(item.get("content", item.get("output")), "input_image")
        ]
        return cost_beside_files(size, [part.get("image_url") for part in parts])

    def answer(self, call: Call) -> Reply:
        request_id = self.request_id
        if "request_id" not in self.model_fields_set:
            request_id = f"resp_{call.own_id}"
        return call.model.chats.responses(self, call, request_id)
