"""Chats of DeepSeek-V3.2, V4 and V4.1 as vLLM's Python frontend renders them, without a template.

Source: vLLM ``renderers/deepseek_v32.py``, ``renderers/deepseek_v4.py``,
``tokenizers/deepseek_v32.py``, ``tokenizers/deepseek_v4.py``, ``tokenizers/deepseek_v41.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from mmroute.chat.renderer import ParsedChat
from mmroute.engines.vllm.deepseek import v32
from mmroute.engines.vllm.deepseek.dsml import IMAGE, ROLES, V32_PREAMBLE, V32_TAGS, Call, Markup
from mmroute.engines.vllm.deepseek.turns import (
    V4_EFFORTS,
    Block,
    Dialect,
    Thinking,
    Turn,
    dialects,
    merged,
    v41_effort,
    with_tools,
    without_dropped,
    write,
)
from mmroute.engines.vllm.hf_chat import check_text_is_handed_on, template_kwargs, tools_of
from mmroute.engines.vllm.message_schema import schema_skips_parts
from mmroute.engines.vllm.messages import VllmChat, to_conversation
from mmroute.engines.vllm.tools import with_parsed_arguments
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items
from mmroute.requests.request import Request

_to_json: Final = partial(json.dumps, ensure_ascii=False)
_V32: Final = Markup(*V32_TAGS, V32_PREAMBLE.replace("\n\n", "\n"), _to_json)
_V4, _V41 = dialects(_to_json)
# They make the engine fail, or are refused by its server.
_REFUSED: Final = frozenset({"chat_template", "conversation", "messages", "self"})
_TOGGLES: Final = ("thinking", "enable_thinking")
_V41_TEXTS: Final = ("text", "input_text", "output_text")
_V41_IMAGES: Final = ("image", "image_url")


@dataclass(frozen=True, slots=True)
class DeepSeekChat(VllmChat):
    """Renders chats of one of DeepSeek's models.

    `add_generation_prompt` and `continue_final_message` have no effect, and a template has none.
    """

    mode: str  # the engine's name for the renderer
    # Returns the prompt for a chat, its variables, and the functions that it may call.
    prompt: Callable[[ParsedChat, Mapping[str, Any], Sequence[Any]], str]

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": f"the engine's renderer {self.mode}"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str:
        check_text_is_handed_on(request)
        kwargs = template_kwargs(request, _REFUSED)
        return self.prompt(chat, kwargs, _functions(tools_of(kwargs, request) or ()))


def _functions(tools: Sequence[Mapping[str, Any]]) -> list[Any]:
    if not all("function" in tool for tool in tools):
        raise invalid("chat_template_kwargs.tools: each tool must have a function")
    return [tool["function"] for tool in tools]


def _v32_prompt(chat: ParsedChat, kwargs: Mapping[str, Any], functions: Sequence[Any]) -> str:
    if not chat.messages:
        raise invalid("messages must not be empty")
    conversation = to_conversation(chat, content_format="string", placeholders={})
    turns: list[Turn] = []
    for is_result, run in groupby(conversation, lambda message: bool(message["role"] == "tool")):
        said = [_turn(message, [Block(message["content"])]) for message in run]
        turns += [_results(said, turns[-1:])] if is_result else said
    thinks = any(kwargs.get(name) for name in _TOGGLES)
    roles = [turn.role for turn in turns]
    if thinks and roles[-1] == "user" and "developer" in roles:
        raise invalid(
            "a developer's message before a last message of the user makes the engine fail if the "
            "model thinks; set thinking to false, or leave the message out"
        )
    return v32.write(turns, functions, _V32, thinks=thinks)


def _results(results: Sequence[Turn], before: Sequence[Turn]) -> Turn:
    """All results of tools in a row, by their order: the engine looks at no ID."""
    calls = sum(len(turn.calls) for turn in before)
    if calls < len(results):
        raise invalid("each result of a tool must follow an assistant's message that calls it")
    return Turn(
        "tool", [block for turn in results for block in turn.blocks], is_open=len(results) < calls
    )


def _v4_prompt(chat: ParsedChat, kwargs: Mapping[str, Any], functions: Sequence[Any]) -> str:
    conversation = to_conversation(chat, content_format="openai", placeholders={})
    turns = [_turn(message, [_v4_block(message)]) for message in conversation]
    return _prompt(turns, kwargs, functions, _v4_effort(kwargs), _V4)


def _v4_block(message: Mapping[str, Any]) -> Block:
    content, is_result = message["content"], message["role"] == "tool"
    if isinstance(content, list):
        content = "\n\n".join([_v4_text(part, is_result=is_result) for part in content])
    return Block(content, is_result, message.get("tool_call_id"))


def _v4_text(part: Mapping[str, Any], *, is_result: bool) -> str:
    kind = part["type"]
    if kind == "text":
        return str(part["text"])
    if is_result:
        return f"[Unsupported {kind}]"
    if kind == "image":
        return IMAGE
    raise invalid(f"a content part of type {kind!r}: this model takes text and images")


def _v4_effort(kwargs: Mapping[str, Any]) -> str | None:
    effort = kwargs.get("reasoning_effort")
    if effort == "none" or not _thinks(kwargs):
        return None
    return V4_EFFORTS.get(effort if isinstance(effort, str) else "high", V4_EFFORTS["high"])


def _v41_prompt(chat: ParsedChat, kwargs: Mapping[str, Any], functions: Sequence[Any]) -> str:
    numbers = iter(range(sum(map(len, chat.media.values()))))
    turns = [_v41_turn(message, numbers) for message in chat.messages]
    return _prompt(turns, kwargs, functions, _v41_effort(kwargs), _V41)


def _v41_turn(message: Mapping[str, Any], numbers: Iterator[int]) -> Turn:
    """The turn of a message as the client sent it: the engine reads its parts again, by itself."""
    if message["role"] not in ROLES:
        raise invalid(f"this model takes no message of the role {quoted(message['role'])}")
    if message.get("content_blocks") is not None:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            "content_blocks: this form of messages is not covered; give content",
        )
    content, reasoning = message.get("content"), message.get("reasoning") or ""
    _check_text(reasoning)
    images: list[int] = []
    if content is None:
        content = ""
    elif isinstance(content, str):
        _check_text(content)
    elif schema_skips_parts(message):
        raise invalid(f"messages of the role {message['role']} must have a part for this model")
    else:
        content = "\n\n".join([_v41_text(part, numbers, images) for part in content])
    called = (message["role"] == "assistant" and message.get("tool_calls")) or ()
    block = Block(content, message["role"] == "tool", message.get("tool_call_id"), images)
    complete = {
        **message,
        "reasoning": reasoning,
        "tool_calls": [with_parsed_arguments(call) for call in called],
    }
    return replace(
        _turn(complete, [block]),
        response_format=message.get("response_format"),
        is_open=bool(message.get("wo_eos")),
    )


def _v41_text(part: Any, numbers: Iterator[int], images: list[int]) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _V41_IMAGES:
        images.append(next(numbers))
        return IMAGE
    text = part.get("text", "") if kind in _V41_TEXTS else None
    if not isinstance(text, str):
        raise invalid(f"this model takes content parts of text and images, found {quoted(part)}")
    _check_text(text)
    return text


def _check_text(text: str) -> None:
    if IMAGE in text:
        raise invalid(f"a text must not have the mark of an image in it, {IMAGE}, for this model")


def _v41_effort(kwargs: Mapping[str, Any]) -> str | None:
    effort = kwargs.get("reasoning_effort", "high")
    thinks = _thinks(kwargs) and effort != "none"
    text = v41_effort("high" if effort == "none" else effort)
    return text if thinks else None


def _thinks(kwargs: Mapping[str, Any]) -> bool:
    named = [kwargs[name] for name in _TOGGLES if name in kwargs]
    return any(named) or not named


def _turn(message: Mapping[str, Any], blocks: Sequence[Block]) -> Turn:
    """The turn of one message."""
    return Turn(
        message["role"],
        blocks,
        reasoning=message.get("reasoning") or "",
        calls=[_call(call) for call in message.get("tool_calls") or ()],
        functions=[tool["function"] for tool in message.get("tools") or ()],
        task=message.get("task"),
    )


def _call(call: Mapping[str, Any]) -> Call:
    function = call["function"]
    named = call["id"] or function.get("id")
    return Call(
        named if named and isinstance(named, str) else None,
        function["name"],
        function["arguments"],
    )


def _prompt(
    turns: list[Turn],
    kwargs: Mapping[str, Any],
    functions: Sequence[Any],
    effort: str | None,
    dialect: Dialect,
) -> str:
    """The prompt of V4 and V4.1."""
    turns = with_tools(turns, functions, role="system")
    thinking = Thinking(effort, bool(kwargs.get("drop_thinking", True)))
    kept = without_dropped(merged(turns), thinking, dialect)
    numbers = [number for turn in kept for block in turn.blocks for number in block.images]
    if numbers != list(range(sum(len(block.images) for turn in turns for block in turn.blocks))):
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY,
            "the engine drops or reorders images of this chat, which is not covered",
        )
    return write(kept, thinking, dialect)


DEEPSEEK_CHATS: Final[Mapping[str, DeepSeekChat]] = {
    chat.mode: chat
    for chat in (
        DeepSeekChat("deepseek_v32", _v32_prompt),
        DeepSeekChat("deepseek_v4", _v4_prompt),
        DeepSeekChat("deepseek_v41", _v41_prompt),
    )
}
"""The renderers by the engine's names for them."""
