"""The body of ``/v1/responses/render``: vLLM's names, defaults and laxness, in its order.

vLLM takes items and tools for the types of the package openai, of which there are some hundred.
Here are those that change a prompt, and of the others the names. Fields of them that change no
prompt are not looked at.

Source: vLLM 0.33.0 ``entrypoints/openai/responses/protocol.py``, openai 3.52
``types/responses``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
    with_config,
)
from typing_extensions import TypedDict

from mmroute.server.protocol import (
    Effort,
    ExtraArgs,
    Int64,
    Integers,
    MmPayload,
    Stop,
    StructuredOutputsParams,
    TopLogprobs,
)
from mmroute.server.request_checks import check_responses

__all__ = ["ResponsesRequest"]

_Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
_OPEN: Final = ConfigDict(extra="allow")


@with_config(_OPEN)
class InputText(TypedDict):
    """Text of a message or of a tool's result."""

    type: Literal["input_text"]
    text: str


@with_config(_OPEN)
class InputImage(TypedDict):
    """An image, by its URL."""

    type: Literal["input_image"]
    detail: NotRequired[Literal["low", "high", "auto", "original"]]
    image_url: NotRequired[str | None]
    file_id: NotRequired[str | None]


@with_config(_OPEN)
class InputFile(TypedDict):
    """A file, which no chat takes."""

    type: Literal["input_file"]


_Parts: TypeAlias = list[Annotated[InputText | InputImage | InputFile, Field(discriminator="type")]]


@with_config(_OPEN)
class InputMessage(TypedDict):
    """A message of anybody."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | _Parts
    type: NotRequired[Literal["message"]]


@with_config(_OPEN)
class OutputText(TypedDict):
    """Text that the model wrote."""

    type: Literal["output_text"]
    text: str


@with_config(_OPEN)
class OutputRefusal(TypedDict):
    """A refusal that the model wrote."""

    type: Literal["refusal"]
    refusal: str


@with_config(_OPEN)
class OutputMessage(TypedDict):
    """A message of the model, as the API returned it."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: list[Annotated[OutputText | OutputRefusal, Field(discriminator="type")]]
    status: NotRequired[_Status]


@with_config(_OPEN)
class FunctionCall(TypedDict):
    """A call of a tool."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: NotRequired[str | None]
    status: NotRequired[_Status | None]


@with_config(_OPEN)
class FunctionCallOutput(TypedDict):
    """The result of a tool."""

    type: Literal["function_call_output"]
    output: str | _Parts
    call_id: NotRequired[str | None]


@with_config(_OPEN)
class CustomToolCall(TypedDict):
    """A call of a tool that takes text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


@with_config(_OPEN)
class CustomToolCallOutput(TypedDict):
    """The result of such a tool."""

    type: Literal["custom_tool_call_output"]
    call_id: str
    output: str | _Parts


@with_config(_OPEN)
class SummaryText(TypedDict):
    """What the model thought, in short."""

    type: Literal["summary_text"]
    text: str


@with_config(_OPEN)
class ReasoningText(TypedDict):
    """What the model thought."""

    type: Literal["reasoning_text"]
    text: str


@with_config(_OPEN)
class ReasoningItem(TypedDict):
    """What the model thought, as the API returned it."""

    type: Literal["reasoning"]
    summary: list[SummaryText]
    content: NotRequired[list[ReasoningText] | None]
    encrypted_content: NotRequired[str | None]
    status: NotRequired[_Status | None]


@with_config(_OPEN)
class OtherItem(TypedDict):
    """An item of a tool that the API itself runs, or of its storage: refused."""

    type: Literal[
        "additional_tools", "apply_patch_call", "apply_patch_call_output", "code_interpreter_call",
        "compaction", "compaction_trigger", "computer_call", "computer_call_output",
        "configuration_update", "file_search_call", "image_generation_call", "item_reference",
        "local_shell_call", "local_shell_call_output", "mcp_approval_request",
        "mcp_approval_response", "mcp_call", "mcp_list_tools", "program", "program_output",
        "shell_call", "shell_call_output", "tool_search_call", "tool_search_output",
        "web_search_call",
    ]  # fmt: skip


def _kind_of(item: object) -> str | None:
    """Which type an item is checked as."""
    if not isinstance(item, Mapping):
        return None
    kind = item.get("type", "message")
    if kind == "message":
        parts = item.get("content")
        written = isinstance(parts, list) and all(map(_is_written, parts))
        of_model = written and item.get("role") == "assistant" and "type" in item
        return "output_message" if of_model else kind
    return kind if isinstance(kind, str) and kind in _ITEMS else "other"


def _is_written(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("output_text", "refusal")


_ITEMS: Final = frozenset({
    "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "reasoning",
})  # fmt: skip
_Item: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[OutputMessage, Tag("output_message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[CustomToolCall, Tag("custom_tool_call")]
    | Annotated[CustomToolCallOutput, Tag("custom_tool_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(_kind_of),
]


@with_config(_OPEN)
class FunctionTool(TypedDict):
    """A tool that a model may call."""

    name: str
    type: Literal["function"]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]
    defer_loading: NotRequired[bool | None]
    description: NotRequired[str | None]


@with_config(_OPEN)
class CustomTool(TypedDict):
    """A tool that takes text."""

    name: str
    type: Literal["custom"]
    description: NotRequired[str | None]


@with_config(_OPEN)
class NamespaceTool(TypedDict):
    """Tools with a name before theirs."""

    description: str
    name: str
    tools: list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]]
    type: Literal["namespace"]


@with_config(_OPEN)
class OtherTool(TypedDict):
    """A tool that the API itself runs: no model of a chat template is shown it."""

    type: Literal[
        "apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search",
        "image_generation", "local_shell", "mcp", "programmatic_tool_calling", "shell",
        "tool_search", "web_search", "web_search_2025_08_26", "web_search_preview",
        "web_search_preview_2025_03_11",
    ]  # fmt: skip


_Tool: TypeAlias = FunctionTool | CustomTool | NamespaceTool | OtherTool


class ToolChoice(BaseModel):
    """Which tool must be called, or which may."""

    model_config = _OPEN

    type: Literal[
        "allowed_tools", "apply_patch", "code_interpreter", "computer", "computer_use",
        "computer_use_preview", "custom", "file_search", "function", "image_generation", "mcp",
        "programmatic_tool_calling", "shell", "web_search_preview",
        "web_search_preview_2025_03_11",
    ]  # fmt: skip


class Reasoning(BaseModel):
    """How much the model is to think."""

    effort: Effort | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
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
    """What vLLM reads over."""

    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: Literal["30m"] = "30m"
    comparison_response_id: str | None = None
    prewarm: bool | None = None


class Message(BaseModel):
    """A message of Harmony, which other models do not read."""

    model_config = _OPEN


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
    input: str | list[_Item]
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
    tools: list[_Tool] = Field(default_factory=list)
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
    previous_input_messages: list[Message | dict[str, Any]] | None = None
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

    @model_validator(mode="before")
    @classmethod
    def _check_first(cls, body: Any) -> Any:
        return check_responses(body) if isinstance(body, dict) else body
