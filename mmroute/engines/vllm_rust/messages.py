"""Chat messages and tools as vLLM's Rust frontend takes them, and as templates get them.

Source: vLLM ``rust/src/server/src/routes/openai/utils/types.rs`` (`ChatMessage`, `Tool`,
`validate_messages`), ``rust/src/server/src/routes/openai/chat_completions/convert.rs``,
``rust/src/chat/src/renderer/hf/mod.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from mmroute.chat.conversation import MediaPart
from mmroute.chat.renderer import ParsedChat
from mmroute.engines.judging import judged, list_of, object_of
from mmroute.engines.vllm_rust.json_values import parse_json, read_json
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.items import Modality

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


_ROLE_AND_CONTENT: Final = frozenset({"role", "content"})
_ANSWER_KEYS: Final = _ROLE_AND_CONTENT | {"tool_call_id"}
_IMAGES: Final = frozenset({"image", "image_url"})
_REASONING: Final = ("reasoning", "reasoning_content", "thinking")
# Around a message or a tool in the body of a request: the body itself, and their list.
_DEPTH: Final = 2

Content: TypeAlias = "str | list[str | MediaPart]"
"""The content of a message: a text, or its parts, which are texts and images."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, whose arguments are JSON as it was sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message, checked. An empty field is one that it does not have."""

    role: str
    content: Content
    reasoning: str = ""
    calls: Sequence[Call] = ()
    call_id: str = ""
    tools: Sequence[dict[str, Any]] = ()

    @property
    def text(self) -> str:
        """The texts of the content, without anything between them."""
        return self._joined("")

    @property
    def images(self) -> list[MediaPart]:
        """The images of the content."""
        return [part for part in self.content if isinstance(part, MediaPart)]

    def for_template(self, content_format: str, image_text: str = "") -> dict[str, Any]:
        """The message as a template gets it; `image_text` stands for an image in a string."""
        shown: dict[str, Any] = {"role": self.role, "content": self._joined(image_text)}
        if content_format == "openai":
            joined = self.role == "assistant" or isinstance(self.content, str)
            parts = [self.text] if joined else self.content
            shown["content"] = [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
                for part in parts
            ]
        if self.tools:
            shown["tools"] = self.tools
        if self.reasoning:
            shown["reasoning"] = shown["reasoning_content"] = self.reasoning
        if self.calls:
            shown["tool_calls"] = [_call_for_template(call) for call in self.calls]
        if self.role == "tool":
            shown["tool_call_id"] = self.call_id
        return shown

    def _joined(self, image_text: str) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part if isinstance(part, str) else image_text for part in self.content)


def images_of(messages: Sequence[Message]) -> dict[Modality, list[MediaPart]]:
    """The images of all messages, in their order and numbered; nothing if there are none."""
    images = [image for message in messages for image in message.images]
    numbered = [image._replace(number=number) for number, image in enumerate(images, 1)]
    return {Modality.IMAGE: numbered} if numbered else {}


def parsed(messages: Sequence[Message]) -> ParsedChat:
    """A chat for a renderer in code, to which `messages_of` gives the messages back."""
    wrapped = [{"message": message} for message in messages]
    return ParsedChat(wrapped, [()] * len(wrapped), images_of(messages))


def messages_of(chat: ParsedChat) -> list[Message]:
    """The messages of a chat from `parsed`."""
    return [each["message"] for each in chat.messages]


def read_messages(given: object, *, empty_arguments: str = "{}") -> list[Message]:
    """Check the messages of a request; `empty_arguments` stand for empty ones of a call."""
    if not isinstance(given, list | tuple) or not given:
        raise invalid(f"messages must be a list of at least one message, found {quoted(given)}")
    return [_message(each, f"messages[{i}]", empty_arguments) for i, each in enumerate(given)]


def read_tools(given: object, where: str) -> list[dict[str, Any]]:
    """Tool definitions as templates get them; `where` is the name of their field."""
    read = read_json(given, where, _DEPTH - 1)
    return [_shown(tool) for tool in judged(TOOLS.validate_python, read, where)]


def _message(given: object, where: str, empty_arguments: str) -> Message:
    if not isinstance(given, Mapping):
        raise invalid(f"{where} must be an object, found {json_type(given)}")
    message = read_json(given, where, _DEPTH)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role == "function":
        raise invalid(f"{where}.role: the engine takes no messages of the role {quoted(role)}")
    if role == "user" and content in ("", []):
        raise invalid(f"{where}: the content of a user's message cannot be empty")
    plain = _ANSWER_KEYS if role == "tool" else _ROLE_AND_CONTENT
    call_id = message.get("tool_call_id", "")
    if isinstance(content, str) and isinstance(call_id, str) and message.keys() == plain:
        return Message(role, content, call_id=call_id)
    message = judged(of_role(role).validate_python, message, where)
    named = [name for name in _REASONING if name in message]
    if len(named) > 1:
        raise invalid(f"{where} has its reasoning twice: {', '.join(named)}")
    result = Message(
        role,
        content if isinstance(content, str) else [_part(part, where) for part in content or ()],
        reasoning=(message[named[0]] if named else None) or "",
        calls=[_call(call, empty_arguments) for call in message.get("tool_calls") or ()],
        call_id=message.get("tool_call_id", ""),
        tools=[_shown(tool) for tool in message.get("tools") or ()],
    )
    if role == "assistant" and content in (None, []) and not (result.reasoning or result.calls):
        raise invalid(f"{where} has neither content, nor reasoning, nor tool calls")
    return result


def _part(part: Mapping[str, Any], where: str) -> str | MediaPart:
    kind: str = part["type"]
    if kind == "text":
        text: str = part["text"]
        return text
    if kind not in _IMAGES:
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY,
            f"{where} has a part of type {kind}: videos and audio are not covered for vLLM's Rust "
            "frontend, which samples and names them otherwise than the Python one",
        )
    url = part["image_url"]["url"] if "image_url" in part else None
    return MediaPart(Modality.IMAGE, 0, url, part.get("uuid"), {}, part)


def _call(call: Mapping[str, Any], empty_arguments: str) -> Call:
    function = call["function"]
    arguments = function.get("arguments")
    arguments = "{}" if arguments is None else arguments or empty_arguments
    return Call(call["id"], function["name"], arguments)


def _call_for_template(call: Call) -> dict[str, Any]:
    arguments = parse_json(call.arguments, f"the arguments of tool call {call.id}")
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    own, outer = function.get("defer_loading"), tool.get("defer_loading")
    more = {"strict": function.get("strict"), "defer_loading": outer if own is None else own}
    shown = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        **{name: value for name, value in more.items() if value is not None},
    }
    return {"type": "function", "function": shown}
