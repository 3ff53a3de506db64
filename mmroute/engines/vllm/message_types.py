"""The messages and tools of chats as vLLM declares them, for pydantic to judge by.

The type that knows the most fields of a message takes it. The types of OpenAI's roles check
neither parts nor tool calls: pydantic does that where an `Iterable` is read. Unknown fields stay,
behind the known ones.

Source: vLLM ``renderers/chat_utils/types.py``, ``entrypoints/generate/base/protocol.py``
(`FunctionDefinition`); openai ``types/chat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from mmroute.errors import invalid, problem

T = TypeVar("T")
_Late: Any = Iterable
_FAST: Final = Field(fail_fast=True)  # a hostile list would have as many errors as entries
_ANY_ROLE: Final = "AnyRole"


def _object(name: str, /, **fields: Any) -> Any:
    return TypedDict(name, fields)  # type: ignore[operator]  # the fields are values here


def _list(entry: Any) -> Any:
    return Annotated[list[entry], _FAST]


_Optional: Final = NotRequired[str | None]
_Breakpoint: Final = NotRequired[
    _object("Breakpoint", mode=Literal["explicit"], ttl=NotRequired[Literal["30m", "12h"]])
]
_ImageLink = _object(
    "ImageLink", url=str, detail=NotRequired[Literal["auto", "low", "high", "original"]]
)
_Link = _object("Link", url=str)
_Sound = _object("Sound", data=str, format=Literal["wav", "mp3"])

_Text = _object("Text", text=str, type=Literal["text"], prompt_cache_breakpoint=_Breakpoint)
_Image = _object(
    "Image", image_url=_ImageLink, type=Literal["image_url"], prompt_cache_breakpoint=_Breakpoint
)
_InputAudio = _object(
    "Audio", input_audio=_Sound, type=Literal["input_audio"], prompt_cache_breakpoint=_Breakpoint
)
_Audio = _object("AudioLink", audio_url=_Link, type=Literal["audio_url"])
_Video = _object("VideoLink", video_url=_Link, type=Literal["video_url"])
_Refusal = _object("Refusal", refusal=str, type=Literal["refusal"])
_Thinking = _object("Thinking", thinking=str, closed=NotRequired[bool], type=Literal["thinking"])
_Reference = _object(
    "Reference", name=NotRequired[str], type=NotRequired[Literal["tool_reference"]]
)
_PlainImage = _object("PlainImage", image_url=_Optional, uuid=_Optional)
_PlainAudio = _object("PlainAudio", audio_url=_Optional)
_PlainVideo = _object("PlainVideo", video_url=_Optional, uuid=_Optional)
# mmroute's own: the next of the request's items.
_NextImage = _object("NextImage", type=Literal["image"])
_NextItem = _object("NextItem", type=Literal["video", "audio"])
_Uncovered = _object(
    "Uncovered",
    type=Literal[
        "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "image_pil", "file"
    ],
)
_UserPart = _Text | _Image | _InputAudio | _NextImage
_Part = (
    _UserPart | _NextItem | _Audio | _Video | _Refusal | _PlainImage | _Uncovered | _PlainAudio
    | _PlainVideo | _Reference | str | _Thinking
)  # fmt: skip

_Called = _object("Called", arguments=str, name=str)
_Call = _object("Call", id=str, function=_Called, type=Literal["function"])
_CalledCustom = _object("CalledCustom", input=str, name=str)
_CustomCall = _object("CustomCall", id=str, custom=_CalledCustom, type=Literal["custom"])
_Described = _object(
    "Described",
    name=str,
    description=NotRequired[str],
    parameters=NotRequired[dict[str, object]],
    strict=NotRequired[bool | None],
)
_DescribedTool = _object("DescribedTool", function=_Described, type=Literal["function"])

_Instruction = _object(
    "Instruction",
    content=str | _Late[_Text],
    role=Literal["developer", "system"],
    name=NotRequired[str],
)
_User = _object("User", content=str | _Late[_UserPart], role=Literal["user"], name=NotRequired[str])
_Assistant = _object(
    "Assistant",
    role=Literal["assistant"],
    audio=NotRequired[_object("Answer", id=str) | None],
    content=NotRequired[str | _Late[_Text | _Refusal] | None],
    function_call=NotRequired[_Called | None],
    name=NotRequired[str],
    refusal=_Optional,
    tool_calls=NotRequired[_Late[_Call | _CustomCall]],
)
_Tool = _object("Tool", content=str | _Late[_Text], role=Literal["tool"], tool_call_id=str)
_Function = _object("Function", content=str | None, name=str, role=Literal["function"])
_AnyRole = _object(
    _ANY_ROLE,
    role=str,
    content=NotRequired[str | _list(_Part)],
    name=NotRequired[str],
    tool_call_id=_Optional,
    tool_calls=NotRequired[_list(_Call) | None],
    reasoning=NotRequired[str | _object("Embeds", data=str, type=Literal["prompt_embeds"]) | None],
    tools=NotRequired[_list(_DescribedTool) | None],
    task=_Optional,
)


class FunctionDefinition(TypedDict, total=False):
    """A function that a model may call."""

    name: Required[str]
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None
    defer_loading: bool | None


class ChatCompletionToolsParam(TypedDict, total=False):
    """A tool that a model may call."""

    type: Literal["function"]
    function: Required[FunctionDefinition]
    defer_loading: bool | None


_OPEN: Final = ConfigDict(extra="allow")
MESSAGE: Final[TypeAdapter[Any]] = TypeAdapter(
    _Instruction | _User | _Assistant | _Tool | _Function | _AnyRole, config=_OPEN
)
"""One message."""
MESSAGE_TOOLS: Final[TypeAdapter[Any]] = TypeAdapter(_list(_DescribedTool), config=_OPEN)
"""The tools of a developer's message."""
TOOLS: Final[TypeAdapter[list[ChatCompletionToolsParam]]] = TypeAdapter(
    Annotated[list[ChatCompletionToolsParam], Field(fail_fast=True, min_length=1)]
)
"""The tools of a request. Unknown fields are dropped."""
LINKED: Final[dict[str, TypeAdapter[Any]]] = {
    "image_url": TypeAdapter(_Image),
    "video_url": TypeAdapter(_Video),
    "audio_url": TypeAdapter(_Audio),
}
"""The types by which vLLM judges a part again where it reads its link."""
DOCUMENTS: Final[TypeAdapter[Any]] = TypeAdapter(_list(dict[str, str]))
"""The documents of a request."""


def judged(judge: Callable[[Any], T], value: object, where: str) -> T:
    """What pydantic makes of a value.

    Raises:
        InexactError: `invalid_request`.
    """
    try:
        return judge(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # The errors of the type that takes most messages say what is wrong with one.
        told = next((e for e in errors if e["loc"][:1] == (_ANY_ROLE,)), errors[0])
        place = [where, *(part for part in told["loc"] if part != _ANY_ROLE)]
        raise invalid(problem({**told, "loc": place})) from None
