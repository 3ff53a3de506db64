"""Chats of Inkling as vLLM's Python frontend renders them: token IDs at once, without a template.

Source: vLLM ``renderers/inkling.py``, ``renderers/inkling_encoding.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from mmroute.chat.renderer import ParsedChat
from mmroute.engines.vllm.hf_chat import template_kwargs, tools_of
from mmroute.engines.vllm.message_schema import schema_skips_parts
from mmroute.engines.vllm.messages import VllmChat, to_conversation
from mmroute.engines.vllm.tools import with_parsed_arguments
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items, Modality
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

ROLES: Final = {
    "user": "message_user",
    "assistant": "message_model",
    "system": "message_system",
    "developer": "message_system",
    "tool": "message_tool",
}
_MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        name: (f"<|{name}|>",)
        for name in (
            *ROLES.values(), "content_text", "content_image", "content_model_end_sampling",
            "content_thinking", "content_audio_input", "content_invoke_tool_json", "end_message",
            "audio_end",
        )
    },
    "content_xml": ("<|content_xml|>", "<|unused_200024|>"),
}  # fmt: skip
"""Mark -> its names in vocabularies; the first counts. The engine starts with none missing."""
_EFFORTS: Final = {
    "none": 0.0, "minimal": 0.1, "low": 0.2, "medium": 0.7, "high": 0.9, "xhigh": 0.99, "max": 0.99,
}  # fmt: skip
DEFAULT_EFFORT: Final = "high"
_MOST_EFFORT: Final = 0.99
_TEXTS: Final = (None, "text", "input_text")
_ITEMS: Final = {
    **dict.fromkeys(("image", "image_url"), "content_image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "content_audio_input"),
}
"""Type of a part -> the mark of its block. The engine puts the item behind the mark."""
# Those of the engine's function that reads the kwargs need no refusal: it takes all.
_REFUSED: Final = frozenset({"chat_template"})

Piece: TypeAlias = "str | int"
"""A text to encode, or the ID of a mark."""


def marks_of(tokenizer: Tokenizer, *, aliases: bool = True) -> Mapping[str, int]:
    """The IDs of the marks."""
    found = {}
    for mark, names in _MARKS.items():
        known = names if aliases else names[:1]
        ids = [i for name in known if (i := tokenizer.token_id(name)) is not None]
        if not ids:
            raise InexactError(
                Reason.CHAT_RENDERER_UNSUPPORTED,
                f"the engine does not start on this model: it needs the token {names[0]}",
            )
        found[mark] = ids[0]
    return found


@dataclass(frozen=True, slots=True)
class InklingChat(VllmChat):
    """Renders chats of Inkling. A mark in a text counts as the token of that name."""

    tokenizer: Tokenizer  # encodes each text for itself
    marks: Mapping[str, int]  # the IDs of the marks
    placeholders: Mapping[Modality, str]  # the text that stands for one item, by modality

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "the engine's renderer inkling"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        if request.continue_final_message:
            raise invalid("continue_final_message is refused for this model")
        # Which may refuse it: a message must not have more placeholders than items.
        to_conversation(chat, content_format="string", placeholders=self.placeholders)
        kwargs = template_kwargs(request, _REFUSED)
        tools = [*(tools_of(kwargs, request) or ())]
        for message in chat.messages:
            if message["role"] == "developer":
                tools += message.get("tools") or ()
        effort = effort_text(kwargs.get("reasoning_effort", DEFAULT_EFFORT))
        pieces = self._prompt(chat.messages, tools, effort)
        return encoded(self.tokenizer, self.marks, pieces, answered=request.add_generation_prompt)

    def _prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], effort: str | None
    ) -> Iterator[Piece]:
        if tools:
            yield from block(self.marks, "system", "content_xml", _described(tools), "tool_declare")
        names: dict[str, str] = {}
        for message in messages:
            role = message["role"]
            if role not in ROLES:
                raise invalid(f"this model takes no message of the role {quoted(role)}")
            if effort and role not in ("system", "developer"):
                yield from block(self.marks, "system", "content_text", effort)
                effort = None
            if role == "tool":
                called = names.get(message.get("tool_call_id") or "", "")
                text = "".join([_text(part) for part in _parts(message)])
                author = message.get("name") or called
                yield from block(self.marks, "tool", "content_text", text, author)
                continue
            if role == "assistant" and (reasoning := message.get("reasoning")):
                yield from block(self.marks, "assistant", "content_thinking", reasoning)
            for part in _parts(message):
                yield from self._part(role, part)
            if role == "assistant":
                yield from self._calls(message.get("tool_calls") or (), names)
                yield self.marks["content_model_end_sampling"]
        if effort:
            yield from block(self.marks, "system", "content_text", effort)

    def _part(self, role: str, part: Any) -> Iterator[Piece]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        mark = _ITEMS.get(kind) if isinstance(kind, str) else None
        if mark is None:
            return block(self.marks, role, "content_text", _text(part))
        content = self.marks["audio_end"] if mark == "content_audio_input" else ""
        return block(self.marks, role, mark, content)

    def _calls(self, calls: Sequence[Mapping[str, Any]], names: dict[str, str]) -> Iterator[Piece]:
        for call in calls:
            function = with_parsed_arguments(call)["function"]
            name = function["name"]
            if call["id"]:
                names[call["id"]] = name
            written = json.dumps(name, ensure_ascii=False)
            text = f'{{"name":{written},"args":{_canonical(function["arguments"])}}}'
            yield from block(self.marks, "assistant", "content_invoke_tool_json", text, name)


def block(
    marks: Mapping[str, int], role: str, kind: str, content: Piece, author: str = ""
) -> Iterator[Piece]:
    """One block of a prompt."""
    yield marks[ROLES[role]]
    if author:
        yield author
    yield marks[kind]
    yield content
    yield marks["end_message"]


def encoded(
    tokenizer: Tokenizer, marks: Mapping[str, int], pieces: Iterable[Piece], *, answered: bool
) -> TokenIds:
    """The token IDs of a prompt, each text encoded for itself."""
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, int):
            ids.append(piece)
        else:
            ids += tokenizer.encode(piece, add_special_tokens=False).tolist()
    if answered:
        ids.append(marks["message_model"])
    return np.array(ids, np.uint32)


def _parts(message: Mapping[str, Any]) -> Sequence[Any]:
    """The parts of a message as the client sent them: the engine reads them again, by itself."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return [content] if content else []
    if schema_skips_parts(message):
        raise invalid(f"messages of the role {message['role']} must have a part for this model")
    return [*content]


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") not in _TEXTS:
        raise invalid(f"a content part that this model does not take: {quoted(part)}")
    text = part.get("text", "")
    return text if isinstance(text, str) else ""


def effort_text(effort: object) -> str | None:
    """The text that tells the model how much to think; None for an unknown effort."""
    value = _EFFORTS.get(effort) if isinstance(effort, str) else effort
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MOST_EFFORT:
        raise invalid(f"reasoning_effort must be from 0 to {_MOST_EFFORT}, found {quoted(effort)}")
    digits = f"{float(value):.2f}".rstrip("0").rstrip(".")
    return f"Thinking effort level: {'0.0' if digits in ('0', '-0') else digits}"


def _described(tools: Sequence[Any]) -> str:
    return _canonical([
        {
            "description": function.get("description") or "",
            "name": function["name"],
            "parameters": function.get("parameters") or {},
            "type": tool.get("type", "function"),
        }
        for tool in tools
        for function in [_function_of(tool)]
    ])  # fmt: skip


def _function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if isinstance(function, Mapping) and "name" in function:
        return function
    raise invalid(f"a tool must have a function with a name, found {quoted(tool)}")


def _canonical(value: Any) -> str:
    """JSON without spaces, its members in the order of their names."""
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
        )
    except (TypeError, ValueError) as error:  # such as names of several types
        raise invalid(f"the tools or a call of one cannot be written as JSON: {error}") from error
