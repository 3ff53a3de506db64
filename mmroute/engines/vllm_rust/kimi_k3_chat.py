"""Chats of Kimi-K3 as vLLM's Rust frontend renders them, without a template.

Source: vLLM ``rust/src/chat/src/renderer/kimi_k3/encoding.rs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np

from mmroute.chat.renderer import ParsedChat
from mmroute.engines.vllm_rust.json_text import COMPACT, tojson
from mmroute.engines.vllm_rust.json_values import parse_json
from mmroute.engines.vllm_rust.messages import Call, Message, messages_of
from mmroute.engines.vllm_rust.options import tools_of_request
from mmroute.engines.vllm_rust.own_chat import OwnChat
from mmroute.engines.vllm_rust.parsers import Reasoning, reasoning_of
from mmroute.engines.vllm_rust.template_files import WHITESPACE
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer
from mmroute.tokenizers.encoders import Encoder

_DEFAULT: Final = Reasoning(True, "max")
_EFFORTS: Final = ("low", "high", "max")
_TYPES: Final = {
    bool: "boolean", type(None): "null", int: "number", float: "number", str: "string",
    dict: "object", list: "array",
}  # fmt: skip
_EFFORT: Final = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the "
    "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`."
)
_TOOLS: Final = (
    "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"
)
_NEW_TOOLS: Final = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n```json\n{}\n```"
)
_REQUIRED: Final = (
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
)
_NONE: Final = (
    "The system is invoked with `tool_choice=none`.\n"
    "You MUST NOT call any tools in the next message."
)
_FORMAT: Final = (
    "The system is invoked with `response_format={}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional "
    "formatting."
)
_SCHEMA: Final = "\nThe JSON data must match the following schema:\n```json\n{}\n```"


class Mark(StrEnum):
    """A piece of a prompt that is read with the tokenizer's added tokens."""

    OPEN = "<|open|>"
    CLOSE = "<|close|>"
    SEP = "<|sep|>"
    END = "<|end_of_msg|>"
    IMAGE = "<|media_pad|>"


@dataclass(frozen=True, slots=True)
class RustKimiK3Chat(OwnChat):
    """Renders chats of Kimi-K3. What a client typed never becomes an added token."""

    tokenizer: Tokenizer  # encodes the marks
    ordinary: Encoder  # encodes the texts, each for itself, and knows no added token

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "the frontend's renderer kimi_k3"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        reasoning = reasoning_of(request, self.default_kwargs).or_else(_DEFAULT)
        if reasoning.enabled and reasoning.effort not in _EFFORTS:
            raise invalid(
                f"reasoning_effort must be one of {', '.join(_EFFORTS)} for this model, found "
                f"{quoted(reasoning.effort)}"
            )
        messages = messages_of(chat)
        ids = []
        for piece in _prompt(messages, request, reasoning):
            encoder = self.tokenizer if isinstance(piece, Mark) else self.ordinary
            ids.append(encoder.encode(piece, add_special_tokens=False))
        return np.concatenate(ids)


def _prompt(messages: Sequence[Message], request: Request, reasoning: Reasoning) -> Iterator[str]:
    thinks = bool(reasoning.enabled)
    tools = tools_of_request(request)
    if tools:
        yield from _internal("tool-declare", _TOOLS.format(_described(tools)))
    if thinks:
        yield from _internal("thinking-effort", _EFFORT.format(reasoning.effort))
    yield from _messages(messages, thinks=thinks)
    choice = request.api_fields.get("tool_choice")
    if choice == "required":
        yield from _internal("tool-choice", _REQUIRED)
    elif choice == "none" and (tools or any(message.tools for message in messages)):
        yield from _internal("tool-choice", _NONE)
    yield from _response_format(request.api_fields.get("response_format"))
    if request.add_generation_prompt:
        yield from _opened("message", role="assistant")
        yield from _opened("think" if thinks else "response")


def _messages(messages: Sequence[Message], *, thinks: bool) -> Iterator[str]:
    calls: dict[str, tuple[int, str]] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        yield from _results(results, calls)
        results = []
        if message.role == "assistant":
            calls = {}
            for place, call in enumerate(message.calls, 1):
                if call.id:
                    calls.setdefault(call.id, (place, call.name))
        yield from _of_message(message, thinks=thinks)
    yield from _results(results, calls)


def _results(results: Sequence[Message], calls: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    """The results of tools, in the order of their calls."""
    for result in results:
        if result.call_id not in calls:
            raise InexactError(
                Reason.CHAT_TEMPLATE_FAILED,
                f"a tool answers the call {quoted(result.call_id)}, which the last message of the "
                "assistant does not make",
            )
        if result.images:
            raise InexactError(
                Reason.UNSUPPORTED_MODALITY, "images in the results of tools were not compared"
            )
    for result in sorted(results, key=lambda result: calls[result.call_id][0]):
        place, name = calls[result.call_id]
        yield from _message(_content(result), role="tool", tool=name, index=str(place))


def _of_message(message: Message, *, thinks: bool) -> Iterator[str]:
    match message.role:
        case "assistant":
            yield from _message(_assistant(message, thinks=thinks), role="assistant")
        case "system" | "developer":
            if message.tools:
                yield from _internal("tool-declare", _NEW_TOOLS.format(_described(message.tools)))
            if not message.tools or message.text or message.images:
                yield from _message(_content(message), role="system")
        case "user":
            yield from _message(_content(message), role="user")
        case role:
            raise invalid(f"this model takes no message of the role {quoted(role)}")


def _content(message: Message) -> Iterator[str]:
    parts = [message.content] if isinstance(message.content, str) else message.content
    return (part if isinstance(part, str) else Mark.IMAGE for part in parts)


def _assistant(message: Message, *, thinks: bool) -> Iterator[str]:
    if thinks:
        reasoning = message.reasoning if message.reasoning.strip(WHITESPACE) else ""
        yield from _element("think", reasoning)
    yield from _element("response", message.text)
    if message.calls:
        yield from _opened("tools")
        for place, call in enumerate(message.calls, 1):
            yield from _opened("call", tool=call.name, index=str(place))
            yield from _arguments(call)
            yield from _closed("call")
        yield from _closed("tools")


def _arguments(call: Call) -> Iterator[str]:
    text = call.arguments.strip(WHITESPACE)
    try:
        arguments = parse_json(text or "{}", "arguments")
    except InexactError:
        yield from _element("json", call.arguments, type="object")
        return
    if not isinstance(arguments, dict):
        raise invalid(f"the arguments of tool call {call.id} must be a JSON object")
    for key, value in arguments.items():
        text = value if isinstance(value, str) else tojson(value, **COMPACT)
        yield from _element("argument", text, key=key, type=_TYPES[type(value)])


def _response_format(given: Mapping[str, Any] | None) -> Iterator[str]:
    kind = None if given is None else given["type"]
    if given is None or kind not in ("json_object", "json_schema"):
        return
    text = _FORMAT.format(kind)
    if kind == "json_schema":
        asked = given[kind]
        schema = asked["schema"] if "schema" in asked else asked["json_schema"]
        text += _SCHEMA.format(tojson(schema, **COMPACT, sort_keys=True))
    yield from _internal("response-format", text)


def _described(tools: Sequence[Mapping[str, Any]]) -> str:
    specs = []
    for tool in tools:
        function = {name: tool["function"].get(name) for name in ("description", "strict")}
        spec = {name: value for name, value in function.items() if value is not None}
        spec |= {name: tool["function"][name] for name in ("name", "parameters")}
        specs.append({"function": spec, "type": "function"})
    return tojson(specs, **COMPACT, sort_keys=True)


def _internal(kind: str, text: str) -> Iterator[str]:
    return _message([text.strip(WHITESPACE)], role="system", type=kind)


def _message(pieces: Iterable[str], **attributes: str) -> Iterator[str]:
    """One message."""
    yield from _opened("message", **attributes)
    yield from pieces
    yield from _closed("message")
    yield Mark.END


def _element(tag: str, text: str, **attributes: str) -> Iterator[str]:
    yield from _opened(tag, **attributes)
    yield text
    yield from _closed(tag)


def _opened(tag: str, **attributes: str) -> Iterator[str]:
    yield Mark.OPEN
    yield tag
    for name, value in attributes.items():
        yield f" {name}"
        yield '="'
        yield value.replace("&", "&amp;").replace('"', "&quot;")
        yield '"'
    yield Mark.SEP


def _closed(tag: str) -> Iterator[str]:
    yield Mark.CLOSE
    yield tag
    yield Mark.SEP
