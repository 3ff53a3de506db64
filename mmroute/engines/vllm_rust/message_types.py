"""The messages and tools of chats as vLLM's Rust frontend declares them, for pydantic to judge by.

Unknown fields are dropped.

Source: vLLM ``rust/src/server/src/routes/openai/utils/types.rs`` (`ChatMessage`, `Tool`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter

from mmroute.engines.judging import list_of, object_of

_STRICT: Final = ConfigDict(strict=True)
_object: Final = partial(object_of, config=_STRICT)
_Optional: Final = NotRequired[str | None]
_Switch: Final = NotRequired[bool | None]

_Text = _object("Text", type=Literal["text"], text=str)
_Link = _object("Link", url=str, detail=NotRequired[Literal["auto", "low", "high"] | None])
_Image = _object("Image", type=Literal["image_url"], image_url=_Link, uuid=_Optional)
_CLOSED: Final = ConfigDict(strict=True, extra="forbid")
# mmroute's own: the next of the request's images.
_Next = object_of("Next", config=_CLOSED, type=Literal["image"], uuid=_Optional)
_Media = _object("Media", type=Literal["video_url", "audio_url", "input_audio"])
_Part: Any = Annotated[_Text | _Image | _Next | _Media, Field(discriminator="type")]
_Content = str | list_of(_Part)
_Texts = NotRequired[str | list_of(_Text) | None]

_Called = _object("Called", name=str, arguments=_Optional)
_Call = _object("Call", id=str, type=Literal["function"], function=_Called)
_Calls = NotRequired[list_of(_Call) | None]
_Described = _object(
    "Described", name=str, description=_Optional, parameters=NotRequired[Any], strict=_Switch,
    defer_loading=_Switch,
)  # fmt: skip
_Tool = _object(
    "Tool", type=NotRequired[Literal["function"]], function=_Described, defer_loading=_Switch
)
_Tools = list_of(_Tool)

_ANY: Final = TypeAdapter(_object("AnyRole", content=_Content))
_NAMED: Final = TypeAdapter(_object("Named", content=_Content, name=_Optional))
_DEVELOPER: Final = TypeAdapter(
    _object("Developer", content=_Content, name=_Optional, tools=NotRequired[_Tools | None])
)
_ASSISTANT: Final = TypeAdapter(
    _object(
        "Assistant", content=_Texts, name=_Optional, reasoning=_Optional,
        reasoning_content=_Optional, thinking=_Optional, tool_calls=_Calls,
    )
)  # fmt: skip
_ANSWER: Final = TypeAdapter(_object("Answer", content=_Content, tool_call_id=str))
_OF_ROLE: Final[Mapping[str, TypeAdapter[Any]]] = {
    "system": _NAMED, "user": _NAMED, "developer": _DEVELOPER, "assistant": _ASSISTANT,
    "tool": _ANSWER,
}  # fmt: skip
TOOLS: Final[TypeAdapter[Any]] = TypeAdapter(_Tools, config=_STRICT)
"""The tools of a request."""


def of_role(role: str) -> TypeAdapter[Any]:
    """The type of the messages of a role."""
    return _OF_ROLE.get(role, _ANY)
