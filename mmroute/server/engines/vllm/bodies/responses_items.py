"""Items and tools of the OpenAI Responses API, with the fields that decide a prompt.

Source: vLLM ``entrypoints/openai/responses/protocol.py`` and openai 3.52
``types/responses``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

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


@with_config(ConfigDict(extra="allow"))
class _Open(TypedDict):
    """A type that keeps unknown fields."""


class InputText(_Open):
    """Text of a message or of a tool's result."""

    type: Literal["input_text"]
    text: str


class InputImage(_Open):
    """An image, by its URL."""

    type: Literal["input_image"]
    detail: NotRequired[Literal["low", "high", "auto", "original"]]
    image_url: NotRequired[str | None]


class InputFile(_Open):
    """A file, which no chat takes."""

    type: Literal["input_file"]


_Parts: TypeAlias = list[Annotated[InputText | InputImage | InputFile, Field(discriminator="type")]]


class InputMessage(_Open):
    """A message of any role."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | _Parts
    type: NotRequired[Literal["message"]]


class OutputText(_Open):
    """Text that the model wrote."""

    type: Literal["output_text"]
    text: str


class OutputRefusal(_Open):
    """A refusal that the model wrote."""

    type: Literal["refusal"]


_Written: TypeAlias = Annotated[
    list[Annotated[OutputText | OutputRefusal, Field(discriminator="type")]],
    BeforeValidator(_only_list),
]


class OutputMessage(_Open):
    """A message of the model, as the API returned it."""

    role: Literal["assistant"]
    content: _Written


class Call(_Open):
    """A call of a tool with arguments, or of one that takes text."""

    type: Literal["function_call", "custom_tool_call"]
    call_id: str
    name: str
    namespace: NotRequired[str | None]


class FunctionCall(Call):
    """A call of a tool."""

    arguments: str


class CustomToolCall(Call):
    """A call of a tool that takes text."""

    input: str


class FunctionCallOutput(_Open):
    """The result of a tool."""

    type: Literal["function_call_output"]
    output: str | _Parts
    call_id: NotRequired[str | None]


class CustomToolCallOutput(_Open):
    """The result of a tool that takes text."""

    type: Literal["custom_tool_call_output"]
    output: str | Annotated[_Parts, BeforeValidator(_only_list)]
    call_id: str


class Text(_Open):
    """A text of the model's reasoning, or of its summary."""

    text: str


class ReasoningItem(_Open):
    """The model's reasoning, as the API returned it."""

    type: Literal["reasoning"]
    summary: Annotated[list[Text], BeforeValidator(_only_list)]
    content: NotRequired[list[Text] | None]


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
        and item.get("status") in ("in_progress", "completed", "incomplete")
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


class FunctionTool(_Open):
    """A tool that a model may call: with arguments, or with a text."""

    type: Literal["function", "custom"]
    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]
    defer_loading: NotRequired[bool | None]


class NamespaceTool(_Open):
    """Tools whose names begin with the name of the namespace."""

    type: Literal["namespace"]
    name: str
    tools: list[FunctionTool]


class OtherTool(_Open):
    """A tool that the API itself runs. Chat templates do not get it."""

    type: str
    server_label: NotRequired[str]


def _kind_of_tool(tool: object) -> str:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if kind in ("function", "custom"):
        return "function"
    return "namespace" if kind == "namespace" else "other"


Tool: TypeAlias = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[NamespaceTool, Tag("namespace")]
    | Annotated[OtherTool, Tag("other")],
    Discriminator(_kind_of_tool),
]
"""An element of `tools`."""
