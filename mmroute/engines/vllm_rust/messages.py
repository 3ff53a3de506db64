"""Chat messages and tools as vLLM's Rust frontend takes them, and as templates get them.

Source: vLLM ``rust/src/server/src/routes/openai/utils/types.rs`` (`ChatMessage`, `Tool`,
`validate_messages`), ``rust/src/server/src/routes/openai/chat_completions/convert.rs``,
``rust/src/chat/src/renderer/hf/mod.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.parts import MediaPart
from mmroute.engines.vllm_rust.json_values import parse_json, read_json
from mmroute.errors import JSON_TYPES, InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.items import Modality

_IMAGE: Final = "image_url"
# A part that takes the next of the request's `images`, which the engine does not know.
_NUMBERED: Final = frozenset({"type", "uuid"})
_DETAILS: Final = (None, "auto", "low", "high")  # without effect
_MEDIA: Final = frozenset({"video_url", "audio_url", "input_audio"})
_REASONING: Final = ("reasoning", "reasoning_content", "thinking")
# Around a message or a tool in the body of a request: the body itself, and their list.
_DEPTH: Final = 2

Content: TypeAlias = "str | list[str | MediaPart]"
"""The content of a message: a text, or its parts, which are texts and images."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool.

    Attributes:
        id: the ID by which the answer names the call.
        name: the tool's name.
        arguments: JSON, as it was sent.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message, checked.

    Attributes:
        role: any text.
        content: its texts and images.
        reasoning: the assistant's reasoning; empty for none.
        calls: the assistant's calls of tools.
        call_id: the call that a tool answers.
        tools: the developer's tools, as templates get them.
    """

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
        """The message as a template gets it.

        Args:
            content_format: the form of contents that the template takes: ``string`` or ``openai``.
            image_text: the text that stands for an image in a string.

        Raises:
            InexactError: `chat_template_failed`: arguments of a call are no JSON.
        """
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
    """Check the messages of a request.

    Args:
        given: the `messages` that the client sent.
        empty_arguments: the text that replaces empty arguments of a tool call.

    Raises:
        InexactError: `invalid_request`; `unsupported_modality` for videos and audio, which are not
            covered.
    """
    if not isinstance(given, list | tuple) or not given:
        raise invalid(f"messages must be a list of at least one message, found {quoted(given)}")
    return [_message(each, f"messages[{i}]", empty_arguments) for i, each in enumerate(given)]


def read_tools(given: object, where: str) -> list[dict[str, Any]]:
    """Tool definitions as templates get them.

    Args:
        given: the client's value.
        where: the name of the field.

    Raises:
        InexactError: `invalid_request`.
    """
    if not isinstance(given, list | tuple):
        raise invalid(f"{where} must be a list of tool definitions, found {quoted(given)}")
    return [_tool(each, f"{where}[{i}]") for i, each in enumerate(given)]


def _message(given: object, where: str, empty_arguments: str) -> Message:
    if not isinstance(given, Mapping):
        raise invalid(f"{where} must be an object, found {json_type(given)}")
    message = read_json(given, where, _DEPTH)
    match role := message.get("role"):
        case "assistant":
            return _assistant(message, where, empty_arguments)
        case "tool":
            call_id = _text(message, "tool_call_id", where)
            return Message(role, _content(message.get("content"), where), call_id=call_id)
        case "function":
            raise invalid(f"{where}: the engine takes no messages of the role function")
        case "developer":
            _optional_text(message, "name", where)
            tools = message.get("tools")
            listed = [] if tools is None else read_tools(tools, f"{where}.tools")
            return Message(role, _content(message.get("content"), where), tools=listed)
        case "system" | "user":
            _optional_text(message, "name", where)
            content = _content(message.get("content"), where)
            if role == "user" and not content:
                raise invalid(f"{where}: the content of a user's message cannot be empty")
            return Message(role, content)
        case str():
            return Message(role, _content(message.get("content"), where))
    raise invalid(f"{where}.role must be a text, found {quoted(role)}")


def _assistant(message: Mapping[str, Any], where: str, empty_arguments: str) -> Message:
    _optional_text(message, "name", where)
    named = [name for name in _REASONING if name in message]
    if len(named) > 1:
        raise invalid(f"{where} has its reasoning twice: {', '.join(named)}")
    reasoning = _optional_text(message, named[0], where) if named else ""
    content, listed = message.get("content"), message.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise invalid(f"{where}.tool_calls must be a list, found {quoted(listed)}")
    calls = [
        _call(each, f"{where}.tool_calls[{i}]", empty_arguments)
        for i, each in enumerate(listed or ())
    ]
    texts: Content = [] if content is None else _content(content, where, only_text=True)
    if not (reasoning or calls or isinstance(texts, str) or texts):
        raise invalid(f"{where} has neither content, nor reasoning, nor tool calls")
    return Message("assistant", texts, reasoning=reasoning, calls=calls)


def _content(content: object, where: str, *, only_text: bool = False) -> Content:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{where}.content must be a text or a list of parts, found {quoted(content)}")
    return [_part(part, f"{where}.content[{i}]", only_text) for i, part in enumerate(content)]


def _part(part: object, where: str, only_text: bool) -> str | MediaPart:
    if not isinstance(part, Mapping):
        raise invalid(f"{where} must be an object, found {quoted(part)}")
    kind = part.get("type")
    if kind == "text":
        return _text(part, "text", where)
    if kind == _IMAGE and not only_text:
        return _image(part, where)
    if kind == Modality.IMAGE and part.keys() <= _NUMBERED and not only_text:
        return MediaPart(Modality.IMAGE, 0, None, _uuid(part, where), {}, part)
    if isinstance(kind, str) and kind in _MEDIA and not only_text:
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY,
            f"{where} is of type {kind}: videos and audio are not covered for vLLM's Rust "
            "frontend, which samples and names them otherwise than the Python one",
        )
    raise invalid(f"{where} is of type {quoted(kind)}, which the engine does not take there")


def _image(part: Mapping[str, Any], where: str) -> MediaPart:
    image = part.get(_IMAGE)
    if not isinstance(image, Mapping):
        raise invalid(f"{where}.{_IMAGE} must be an object with a url, found {quoted(image)}")
    if image.get("detail") not in _DETAILS:
        raise invalid(
            f"{where}.{_IMAGE}.detail must be auto, low or high, found {quoted(image['detail'])}"
        )
    url = _text(image, "url", f"{where}.{_IMAGE}")
    return MediaPart(Modality.IMAGE, 0, url, _uuid(part, where), {}, part)


def _uuid(part: Mapping[str, Any], where: str) -> str | None:
    return None if part.get("uuid") is None else _text(part, "uuid", where)


def _call(given: object, where: str, empty_arguments: str) -> Call:
    if not isinstance(given, Mapping) or not isinstance(given.get("function"), Mapping):
        raise invalid(f"{where} must be an object with a function, found {quoted(given)}")
    if given.get("type") != "function":
        raise invalid(f"{where}.type must be function, found {quoted(given.get('type'))}")
    function = given["function"]
    arguments = _optional(function, "arguments", str, f"{where}.function")
    arguments = "{}" if arguments is None else arguments or empty_arguments
    return Call(_text(given, "id", where), _text(function, "name", f"{where}.function"), arguments)


def _call_for_template(call: Call) -> dict[str, Any]:
    arguments = parse_json(call.arguments, f"the arguments of tool call {call.id}")
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(given: object, where: str) -> dict[str, Any]:
    tool = read_json(given, where, _DEPTH)
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type", "function") != "function":
        raise invalid(f"{where} must be the definition of a function, found {quoted(given)}")
    shown = {
        "name": _text(function, "name", where),
        "description": _optional(function, "description", str, where),
        "parameters": function.get("parameters"),
    }
    deferred = _optional(function, "defer_loading", bool, where)
    outer = _optional(tool, "defer_loading", bool, where)
    more = {
        "strict": _optional(function, "strict", bool, where),
        "defer_loading": outer if deferred is None else deferred,
    }
    shown |= {name: value for name, value in more.items() if value is not None}
    return {"type": "function", "function": shown}


def _text(given: Mapping[str, Any], name: str, where: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise invalid(f"{where}.{name} must be a text, found {quoted(value)}")
    return value


def _optional(given: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = given.get(name)
    if value is None or isinstance(value, kind):
        return value
    raise invalid(f"{where}.{name} must be of type {JSON_TYPES[kind]}, found {quoted(value)}")


def _optional_text(given: Mapping[str, Any], name: str, where: str) -> str:
    return _optional(given, name, str, where) or ""
