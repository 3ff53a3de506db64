"""Items and tools of the OpenAI Responses API.

Source: vLLM ``entrypoints/openai/responses/protocol.py`` and openai 3.52
``types/responses``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, get_args

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from mmroute.engines.vllm.bodies.errors import unsupported_field


def _only_list(value: object) -> object:
    """Refuse what vLLM takes for an iterable of parts, and reads part by part later."""
    if isinstance(value, str | Mapping):
        raise unsupported_field("input: parts that are an object or a text are not covered")
    return value


def _refuse_reference(_item: object) -> None:
    raise unsupported_field(
        'input: an item with an `id` and no "type", which is no message of the API, is not covered'
    )


_Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
_Phase: TypeAlias = Literal["commentary", "final_answer"]


@with_config(ConfigDict(extra="allow"))
class _Open(TypedDict):
    """A type that keeps unknown fields."""


class _Caller(_Open):
    """Who called a tool: the model, or a program of it."""

    type: Literal["direct", "program"]


class InputText(_Open):
    """Text of a message or of a tool's result."""

    type: Literal["input_text"]
    text: str


class InputImage(_Open):
    """An image, by its URL."""

    type: Literal["input_image"]
    detail: NotRequired[Literal["low", "high", "auto", "original"]]
    image_url: NotRequired[str | None]
    file_id: NotRequired[str | None]


class InputFile(_Open):
    """A file, which no chat takes."""

    type: Literal["input_file"]


_Parts: TypeAlias = list[Annotated[InputText | InputImage | InputFile, Field(discriminator="type")]]


class InputMessage(_Open):
    """A message of any role."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | _Parts
    type: NotRequired[Literal["message"]]
    phase: NotRequired[_Phase | None]


class OutputText(_Open):
    """Text that the model wrote."""

    type: Literal["output_text"]
    text: str
    annotations: NotRequired[Annotated[list[Any], BeforeValidator(_only_list)]]
    logprobs: NotRequired[Annotated[list[Any] | None, BeforeValidator(_only_list)]]


class OutputRefusal(_Open):
    """A refusal that the model wrote."""

    type: Literal["refusal"]
    refusal: str


_Written: TypeAlias = Annotated[
    list[Annotated[OutputText | OutputRefusal, Field(discriminator="type")]],
    BeforeValidator(_only_list),
]


class OutputMessage(_Open):
    """A message of the model, as the API returned it."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: _Written
    id: NotRequired[str]
    phase: NotRequired[_Phase | None]
    status: NotRequired[_Status]


class FunctionCall(_Open):
    """A call of a tool."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: NotRequired[str | None]
    caller: NotRequired[_Caller | None]
    namespace: NotRequired[str | None]
    status: NotRequired[_Status | None]


class FunctionCallOutput(_Open):
    """The result of a tool."""

    type: Literal["function_call_output"]
    output: str | _Parts
    call_id: NotRequired[str | None]
    id: NotRequired[str | None]
    caller: NotRequired[_Caller | None]
    name: NotRequired[str | None]
    namespace: NotRequired[str | None]
    status: NotRequired[_Status | None]


class CustomToolCall(_Open):
    """A call of a tool that takes text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    id: NotRequired[str | None]
    caller: NotRequired[_Caller | None]
    namespace: NotRequired[str | None]


class CustomToolCallOutput(_Open):
    """The result of a tool that takes text."""

    type: Literal["custom_tool_call_output"]
    call_id: str
    output: str | Annotated[_Parts, BeforeValidator(_only_list)]
    id: NotRequired[str]
    caller: NotRequired[_Caller | None]


class SummaryText(_Open):
    """A summary of the model's reasoning."""

    type: Literal["summary_text"]
    text: str


class ReasoningText(_Open):
    """The model's reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(_Open):
    """The model's reasoning, as the API returned it."""

    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], BeforeValidator(_only_list)]
    id: NotRequired[str]
    content: NotRequired[list[ReasoningText] | None]
    encrypted_content: NotRequired[str | None]
    status: NotRequired[_Status | None]


class OtherItem(_Open):
    """An item of a tool that the API itself runs, or of its storage: refused."""

    type: str


def _kind_of(item: object) -> str | None:
    """The tag of the type that an item is checked as."""
    if not isinstance(item, Mapping):
        return None
    kind = item.get("type")
    if kind not in (None, "message"):
        return kind if isinstance(kind, str) and kind in _ITEMS else "other"
    if kind is None and isinstance(item.get("id"), str):
        return "untyped"
    parts = item.get("content")
    written = isinstance(parts, list) and all(
        isinstance(part, Mapping) and part.get("type") in ("output_text", "refusal")
        for part in parts
    )
    # vLLM reads a text as parts if the item has every field of what a model wrote.
    written = written or (
        isinstance(parts, str | Mapping)
        and parts != ""
        and isinstance(item.get("id"), str)
        and item.get("status") in get_args(_Status)
    )
    of_model = written and item.get("role") == "assistant" and kind is not None
    return "output_message" if of_model else "message"


_ITEMS: Final = frozenset({
    "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "reasoning",
})  # fmt: skip
Item: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[OutputMessage, Tag("output_message")]
    | Annotated[
        InputMessage | Annotated[InputMessage, BeforeValidator(_refuse_reference)],
        Field(union_mode="left_to_right"),
        Tag("untyped"),
    ]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[CustomToolCall, Tag("custom_tool_call")]
    | Annotated[CustomToolCallOutput, Tag("custom_tool_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(_kind_of),
]
"""An element of `input`."""


class _Tool(_Open):
    """The fields that tools of both types have."""

    name: str
    allowed_callers: NotRequired[list[Literal["direct", "programmatic"]] | None]
    defer_loading: NotRequired[bool | None]
    description: NotRequired[str | None]


class FunctionTool(_Tool):
    """A tool that a model may call."""

    type: Literal["function"]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class _TextFormat(_Open):
    """The format of free text, the only one that vLLM's API takes."""

    type: Literal["text"]


class CustomTool(_Tool):
    """A tool that takes text."""

    type: Literal["custom"]
    format: NotRequired[_TextFormat | None]


class NamespaceTool(_Open):
    """Tools whose names begin with the name of the namespace."""

    description: str
    name: str
    tools: list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]]
    type: Literal["namespace"]


class McpTool(_Open):
    """The tools of a server, which the API itself runs."""

    type: Literal["mcp"]
    server_label: str


class OtherTool(_Open):
    """A tool that the API itself runs. Chat templates do not get it."""

    type: Literal[
        "apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search",
        "image_generation", "local_shell", "programmatic_tool_calling", "shell", "tool_search",
        "web_search", "web_search_2025_08_26", "web_search_preview",
        "web_search_preview_2025_03_11",
    ]  # fmt: skip


Tool: TypeAlias = FunctionTool | CustomTool | NamespaceTool | McpTool | OtherTool
"""An element of `tools`."""
