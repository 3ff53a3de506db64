"""Chats of Inkling as vLLM's Rust frontend renders them.

The blocks of a prompt are as the Python frontend writes them. What it makes of messages differs.

Source: vLLM ``rust/src/chat/src/renderer/inkling/mod.rs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmroute.chat.renderer import ParsedChat
from mmroute.engines.vllm.inkling_chat import (
    DEFAULT_EFFORT,
    ROLES,
    Piece,
    block,
    effort_text,
    encoded,
)
from mmroute.engines.vllm_rust.json_text import COMPACT, tojson
from mmroute.engines.vllm_rust.json_values import parse_json
from mmroute.engines.vllm_rust.messages import Call, Message, messages_of
from mmroute.engines.vllm_rust.options import hides_tools, tools_of_request
from mmroute.engines.vllm_rust.own_chat import OwnChat
from mmroute.engines.vllm_rust.parsers import Reasoning, reasoning_of
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class RustInklingChat(OwnChat):
    """Renders chats of Inkling."""

    tokenizer: Tokenizer  # encodes each text for itself
    marks: Mapping[str, int]  # the IDs of the marks
    earlier: bool = False  # whether the frontend is that of 0.32.0

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "the frontend's renderer inkling"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        if request.continue_final_message:
            raise invalid("continue_final_message is refused for this model")
        if chat.media:
            raise InexactError(
                Reason.UNSUPPORTED_MODALITY, "images of this model were not compared"
            )
        thinks, effort = reasoning_of(request, self.default_kwargs).or_else(
            Reasoning(True, DEFAULT_EFFORT)
        )
        messages = messages_of(chat)
        of_messages = [tool for message in messages for tool in message.tools]
        tools = [*tools_of_request(request), *of_messages]
        if hides_tools(request, earlier=self.earlier):
            tools = []
        pieces = self._prompt(messages, tools, effort_text(effort if thinks else 0.0))
        return encoded(self.tokenizer, self.marks, pieces, answered=request.add_generation_prompt)

    def _prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], effort: str | None
    ) -> Iterator[Piece]:
        if tools:
            yield from block(self.marks, "system", "content_xml", _described(tools), "tool_declare")
        names: dict[str, str] = {}
        for message in messages:
            if effort and message.role not in ("system", "developer"):
                yield from block(self.marks, "system", "content_text", effort)
                effort = None
            match message.role:
                case "tool":
                    author = names.get(message.call_id, "")
                    yield from block(self.marks, "tool", "content_text", message.text, author)
                case "assistant":
                    yield from self._assistant(message, names)
                case role if role in ROLES:
                    for text in _texts(message):
                        yield from block(self.marks, role, "content_text", text)
                case role:
                    raise invalid(f"this model takes no message of the role {quoted(role)}")
        if effort:
            yield from block(self.marks, "system", "content_text", effort)

    def _assistant(self, message: Message, names: dict[str, str]) -> Iterator[Piece]:
        if message.reasoning:
            yield from block(self.marks, "assistant", "content_thinking", message.reasoning)
        for text in filter(None, _texts(message)):
            yield from block(self.marks, "assistant", "content_text", text)
        for call in message.calls:
            if call.id:
                names[call.id] = call.name
            yield from block(
                self.marks, "assistant", "content_invoke_tool_json", _call_text(call), call.name
            )
        yield self.marks["content_model_end_sampling"]


def _texts(message: Message) -> list[str]:
    """The texts that have a block each: of a text that is no list of parts none, if it is empty."""
    if isinstance(message.content, str):
        return [message.content] if message.content else []
    return [part for part in message.content if isinstance(part, str)]


def _call_text(call: Call) -> str:
    arguments = parse_json(call.arguments, f"the arguments of tool call {call.id}")
    if not isinstance(arguments, dict):
        raise invalid(f"the arguments of tool call {call.id} must be a JSON object")
    return f'{{"name":{tojson(call.name)},"args":{_canonical(arguments)}}}'


def _described(tools: Sequence[Mapping[str, Any]]) -> str:
    functions = [tool["function"] for tool in tools]
    return _canonical([
        {
            "description": function["description"] or "",
            "name": function["name"],
            "parameters": function["parameters"],
            "type": "function",
        }
        for function in functions
    ])  # fmt: skip


def _canonical(value: Any) -> str:
    return tojson(value, **COMPACT, sort_keys=True)
