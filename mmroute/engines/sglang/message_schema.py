"""The messages and tools of chats as SGLang declares them, for pydantic to judge by.

Source: SGLang ``srt/entrypoints/openai/protocol.py``; SGLang ``srt/entrypoints/http_server.py``
(`ORJSONRequest`), ``srt/entrypoints/openai/serving_chat.py`` (`parse_tool_call_arguments`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NoReturn, Self, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, model_validator

from mmroute.errors import InexactError, Reason, invalid, quoted

UNCHECKED: Final = "unchecked_tools"
"""The field of a request, of mmroute's own, whose tools need not have a JSON Schema."""
HANDED_ON: Final = "handed_on"
"""The field of a request, of mmroute's own, that says how its rendered chat is handed on.

It is `AS_TEXT` where a model with items always gets the text, and `NOT` where the token IDs of the
rendered chat are asked for.
"""
AS_TEXT: Final = "text"
NOT: Final = "not"
_INT64: Final = 1 << 63
_UINT64: Final = 1 << 64


def check_values(name: str, value: object) -> None:
    """Refuse what orjson does not read from a body as it is sent.

    It refuses half of a surrogate pair, and makes a float of an integer of more than 64 bits.
    """
    if type(value) is int and not -_INT64 <= value < _UINT64:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"{name} holds an integer of more than 64 bits, which the engine makes a float",
        )
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise invalid(f"{name} holds a lone surrogate: {error.reason}") from error
    elif isinstance(value, list | tuple):
        for entry in value:
            check_values(name, entry)
    elif isinstance(value, dict | Mapping):  # the second alone takes longer
        for key, entry in value.items():
            check_values(name, key)
            check_values(name, entry)


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a tool call."""
    try:
        arguments = json.loads(
            text, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise invalid(f"the arguments of a tool call must be JSON: {error}") from error
    check_values("the arguments of a tool call", arguments)
    if not isinstance(arguments, dict):
        raise invalid(f"the arguments of a tool call must be an object, found {quoted(arguments)}")
    return arguments


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int | float:
    """An integer; a float where it has more than 64 bits."""
    number = float(digits)
    if -_INT64 <= number <= _UINT64 and -_INT64 <= (exact := int(digits)) < _UINT64:
        return exact
    return _finite(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is infinity")
    return number


_Content = Annotated[str, Field(min_length=0)]  # without a limit, half of a pair would be taken
_Lower = BeforeValidator(lambda role: role.lower() if isinstance(role, str) else role)


def _no_flag(number: object) -> object:
    if isinstance(number, bool):
        raise ValueError("an effort must not be true or false")
    return number


class _Text(BaseModel):
    type: Literal["text"]
    text: str


class _Thinking(BaseModel):
    type: Literal["thinking", "reasoning"]
    thinking: str | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.thinking is None) == (self.text is None):
            raise ValueError("a part that is thought must have either a thinking or a text")
        return self


class _Url(BaseModel):
    url: str
    detail: Literal["auto", "low", "high", "default"] | None = "auto"
    max_dynamic_patch: None = None  # these change how some models count an image
    min_dynamic_patch: None = None
    max_long_side_pixel: None = None
    content_hash: None = None


class _Image(BaseModel):
    type: Literal["image_url"]
    image_url: _Url
    modalities: Literal["image"] | None = "image"
    uuid: Any = None  # mmroute's own: the image's entry in mm_hashes
    bare: bool = False  # likewise: a part that takes the next of `images`


class _Reference(BaseModel):
    type: Literal["tool_reference"]
    name: str


_Part = Annotated[_Text | _Thinking | _Image | _Reference, Field(discriminator="type")]
_Said = Annotated[_Text | _Image | _Reference, Field(discriminator="type")]


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(BaseModel):
    id: str | None = None
    index: int | None = None
    type: Literal["function"] = "function"
    function: _Function


class _User(BaseModel):
    role: Literal["user"]
    content: _Content | list[_Said]


class _Message(BaseModel):
    role: Annotated[
        Literal[
            "system", "assistant", "tool", "function", "developer", "latest_reminder", "root"
        ],
        _Lower,
    ]  # fmt: skip
    content: _Content | list[_Part] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tools: None = None  # of a message: not covered
    prefix: bool | None = None

    @model_validator(mode="after")
    def _assistant_thinks(self) -> Self:
        if self.role != "assistant" and isinstance(self.content, list):
            for part in self.content:
                if isinstance(part, _Thinking):
                    raise ValueError("only the assistant's messages may have parts of thinking")
        return self


class _Described(BaseModel):
    description: str | None = None
    name: str
    parameters: object = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Tool(BaseModel):
    """The definition of a tool."""

    type: str = "function"
    function: _Described
    defer_loading: bool | None = None


class _Named(BaseModel):
    name: str


class ToolChoice(BaseModel):
    """The one tool that a client wants to be called."""

    function: _Named
    type: Literal["function"] = "function"


TOOL_CHOICE: TypeAdapter[ToolChoice | Literal["auto", "required", "none"]] = TypeAdapter(
    ToolChoice | Literal["auto", "required", "none"]
)
"""The field `tool_choice`."""
NamedEffort: TypeAlias = Literal[
    "none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"
]  # fmt: skip
EFFORTS: Final = frozenset(get_args(NamedEffort))
"""The names of efforts."""
EFFORT: TypeAdapter[str | float | None] = TypeAdapter(
    NamedEffort | Annotated[float, BeforeValidator(_no_flag), Field(ge=0, le=0.99)] | None
)
"""The field `reasoning_effort`."""
TOOLS: TypeAdapter[list[Tool]] = TypeAdapter(Annotated[list[Tool], Field(fail_fast=True)])
"""The tools of a request."""
CHAT: TypeAdapter[list[_User | _Message]] = TypeAdapter(
    Annotated[list[_User | _Message], Field(min_length=1)]
)
"""The messages of a chat."""
