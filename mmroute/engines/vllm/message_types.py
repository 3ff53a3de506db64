"""The messages and tools of chats as vLLM declares them, for pydantic to judge by.

Source: vLLM ``renderers/chat_utils/types.py``, ``entrypoints/generate/base/protocol.py``
(`FunctionDefinition`); openai ``types/chat``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Final, Literal, NotRequired, Required

from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from mmroute.engines.judging import list_of, object_of

LENIENT: Final = "AnyRole"
"""The type that takes most messages: its errors say what is wrong with one that none takes."""
_Late: Any = Iterable
_Optional: Final = NotRequired[str | None]
_Breakpoint: Final = NotRequired[
    object_of("Breakpoint", mode=Literal["explicit"], ttl=NotRequired[Literal["30m", "12h"]])
]
_ImageLink = object_of(
    "ImageLink", url=str, detail=NotRequired[Literal["auto", "low", "high", "original"]]
)
_Link = object_of("Link", url=str)
_Sound = object_of("Sound", data=str, format=Literal["wav", "mp3"])

_Text = object_of("Text", text=str, type=Literal["text"], prompt_cache_breakpoint=_Breakpoint)
_Image = object_of(
    "Image", image_url=_ImageLink, type=Literal["image_url"], prompt_cache_breakpoint=_Breakpoint
)
_InputAudio = object_of(
    "Audio", input_audio=_Sound, type=Literal["input_audio"], prompt_cache_breakpoint=_Breakpoint
)
_Audio = object_of("AudioLink", audio_url=_Link, type=Literal["audio_url"])
_Video = object_of("VideoLink", video_url=_Link, type=Literal["video_url"])
_Refusal = object_of("Refusal", refusal=str, type=Literal["refusal"])
_Thinking = object_of("Thinking", thinking=str, closed=NotRequired[bool], type=Literal["thinking"])
_Reference = object_of(
    "Reference", name=NotRequired[str], type=NotRequired[Literal["tool_reference"]]
)
_PlainImage = object_of("PlainImage", image_url=_Optional, uuid=_Optional)
_PlainAudio = object_of("PlainAudio", audio_url=_Optional)
_PlainVideo = object_of("PlainVideo", video_url=_Optional, uuid=_Optional)
# mmroute's own: the next of the request's items.
_NextImage = object_of("NextImage", type=Literal["image"])
_NextItem = object_of("NextItem", type=Literal["video", "audio"])
_Uncovered = object_of(
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

_Called = object_of("Called", arguments=str, name=str)
_Call = object_of("Call", id=str, function=_Called, type=Literal["function"])
_CalledCustom = object_of("CalledCustom", input=str, name=str)
_CustomCall = object_of("CustomCall", id=str, custom=_CalledCustom, type=Literal["custom"])
_Described = object_of(
    "Described", name=str, description=NotRequired[str],
    parameters=NotRequired[dict[str, object]], strict=NotRequired[bool | None],
)  # fmt: skip
_DescribedTool = object_of("DescribedTool", function=_Described, type=Literal["function"])

_Name: Final = NotRequired[str]
_Instruction = object_of(
    "Instruction", content=str | _Late[_Text], role=Literal["developer", "system"], name=_Name
)
_User = object_of("User", content=str | _Late[_UserPart], role=Literal["user"], name=_Name)
_Assistant = object_of(
    "Assistant",
    role=Literal["assistant"],
    audio=NotRequired[object_of("Answer", id=str) | None],
    content=NotRequired[str | _Late[_Text | _Refusal] | None],
    function_call=NotRequired[_Called | None],
    name=_Name,
    refusal=_Optional,
    tool_calls=NotRequired[_Late[_Call | _CustomCall]],
)
_Tool = object_of("Tool", content=str | _Late[_Text], role=Literal["tool"], tool_call_id=str)
_Function = object_of("Function", content=str | None, name=str, role=Literal["function"])
_Embeddings = object_of("Embeddings", data=str, type=Literal["prompt_embeds"])
_AnyRole = object_of(
    LENIENT,
    role=str,
    content=NotRequired[str | list_of(_Part)],
    name=_Name,
    tool_call_id=_Optional,
    tool_calls=NotRequired[list_of(_Call) | None],
    reasoning=NotRequired[str | _Embeddings | None],
    tools=NotRequired[list_of(_DescribedTool) | None],
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
_OF_ROLE: Final[dict[Any, Any]] = {
    "developer": _Instruction, "system": _Instruction, "user": _User, "assistant": _Assistant,
    "tool": _Tool,
}  # fmt: skip
MESSAGE_TOOLS: Final[TypeAdapter[Any]] = TypeAdapter(list_of(_DescribedTool), config=_OPEN)
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
DOCUMENTS: Final[TypeAdapter[Any]] = TypeAdapter(list_of(dict[str, str]))
"""The documents of a request."""


def of_role(role: object) -> TypeAdapter[Any]:
    """The types of one message that its role leaves."""
    return _adapter(_OF_ROLE.get(role, _Function) if isinstance(role, str) else _Function)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind | _AnyRole, config=_OPEN)
