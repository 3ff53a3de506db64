"""Chats of DeepSeek-V3.2, V4 and V4.1 as vLLM's Rust frontend renders them.

The text of a turn is as the Python frontend writes it. What it makes of messages, and what it
refuses, differs.

Source: vLLM ``rust/src/chat/src/renderer/deepseek.rs``,
``rust/src/chat/src/renderer/deepseek_v32/encoding.rs``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from mmroute.engines.vllm_rust.json_text import tojson
from mmroute.engines.vllm_rust.json_values import parse_json
from mmroute.engines.vllm_rust.messages import Message, messages_of
from mmroute.engines.vllm_rust.options import tools_of_request
from mmroute.engines.vllm_rust.own_chat import OwnChat
from mmroute.engines.vllm_rust.parsers import Reasoning, reasoning_of
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items
from mmroute.requests.request import Request

_V32: Final = Markup(*V32_TAGS, V32_PREAMBLE, tojson)
_V4, _V41 = dialects(tojson)
_HIGH: Final = Reasoning(True, "high")
_FUNCTION: Final = ("name", "description", "parameters", "strict")
"""The fields of a function that the prompt shows."""


@dataclass(frozen=True, slots=True)
class RustDeepSeekChat(OwnChat):
    """Renders chats of one of DeepSeek's models."""

    mode: str  # the frontend's name for the renderer

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": f"the frontend's renderer {self.mode}"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> str:
        messages = messages_of(chat)
        for message in messages:
            if message.role not in ROLES:
                raise invalid(f"this model takes no message of the role {quoted(message.role)}")
            if message.images:
                raise InexactError(
                    Reason.UNSUPPORTED_MODALITY,
                    "vLLM's Rust frontend takes no images in chats of this model",
                )
        reasoning = reasoning_of(request, self.default_kwargs)
        return _PROMPTS[self.mode](messages, request, reasoning)


def _v32_prompt(messages: Sequence[Message], request: Request, reasoning: Reasoning) -> str:
    turns: list[Turn] = []
    caller: Turn | None = None
    for is_result, run in groupby(messages, lambda message: message.role == "tool"):
        if is_result:
            turns.append(_results(list(run), caller))
            continue
        written = [_turn(message, strict=True) for message in run]
        turns += written
        caller = next((turn for turn in reversed(written) if turn.role == "assistant"), caller)
    turns[-1] = replace(turns[-1], is_open=request.continue_final_message)
    functions = [_function(tool) for tool in tools_of_request(request)]
    thinks = bool(reasoning.enabled)
    return v32.write(turns, functions, _V32, thinks=thinks, asks=request.add_generation_prompt)


def _results(run: Sequence[Message], caller: Turn | None) -> Turn:
    """The results of tools in the order of their calls, of which there must be as many."""
    called = [call.id for call in caller.calls] if caller else []
    results = {message.call_id: message.text for message in run}
    if len(called) != len(run) or len(results) != len(run) or results.keys() != set(called):
        raise invalid(
            "each call of a tool must have one result for this model, and each result one call"
        )
    return Turn("tool", [Block(results[call_id or ""]) for call_id in called])


def _v4_prompt(messages: Sequence[Message], request: Request, reasoning: Reasoning) -> str:
    def effort(name: object) -> str:
        if isinstance(name, str) and name in V4_EFFORTS:
            return V4_EFFORTS[name]
        raise invalid(
            f"reasoning_effort must be one of {', '.join(V4_EFFORTS)}, found {quoted(name)}"
        )

    return _prompt([_turn(each) for each in messages], request, reasoning, effort, _V4)


def _v41_prompt(messages: Sequence[Message], request: Request, reasoning: Reasoning) -> str:
    if any(IMAGE in part for message in messages for part in (message.reasoning, message.text)):
        raise invalid(f"a text must not have the mark of an image in it, {IMAGE}, for this model")
    turns = [_turn(message, joined_by="\n\n") for message in messages]
    return _prompt(turns, request, reasoning, v41_effort, _V41)


def _prompt(
    turns: list[Turn],
    request: Request,
    reasoning: Reasoning,
    effort: Callable[[object], str],
    dialect: Dialect,
) -> str:
    """The prompt of V4 and V4.1."""
    turns[-1] = replace(turns[-1], is_open=request.continue_final_message)
    functions = [_function(tool) for tool in tools_of_request(request)]
    turns = with_tools(turns, functions, role="tools")
    wanted = reasoning.or_else(_HIGH)
    drops = request.chat_template_kwargs.get("drop_thinking", True)
    if not isinstance(drops, bool):
        raise invalid(f"drop_thinking must be true or false, found {quoted(drops)}")
    thinking = Thinking(effort(wanted.effort) if wanted.enabled else None, drops)
    kept = without_dropped(merged(turns), thinking, dialect)
    return write(kept, thinking, dialect, asks=request.add_generation_prompt)


def _turn(message: Message, *, joined_by: str = "", strict: bool = False) -> Turn:
    """The turn of one message."""
    text = message.text
    if joined_by and message.role != "assistant" and not isinstance(message.content, str):
        text = joined_by.join([part for part in message.content if isinstance(part, str)])
    return Turn(
        message.role,
        [Block(text, message.role == "tool", message.call_id)],
        reasoning=message.reasoning,
        calls=[
            Call(call.id, call.name, _arguments(call.arguments, strict)) for call in message.calls
        ],
        functions=[_function(tool) for tool in message.tools],
    )


def _arguments(text: str, strict: bool) -> Mapping[str, Any]:
    try:
        arguments = parse_json(text, "the arguments of a tool call")
    except InexactError:
        arguments = None
    if isinstance(arguments, dict):
        return arguments
    if strict:
        raise invalid(f"the arguments of a tool call must be a JSON object, found {quoted(text)}")
    return {"arguments": text}


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    return {
        name: function[name]
        for name in _FUNCTION
        if name == "parameters" or function.get(name) is not None
    }


_PROMPTS: Final[Mapping[str, Callable[[Sequence[Message], Request, Reasoning], str]]] = {
    "deepseek_v32": _v32_prompt,
    "deepseek_v4": _v4_prompt,
    "deepseek_v41": _v41_prompt,
}
DEEPSEEK_MODES: Final = frozenset(_PROMPTS)
"""The frontend's names for the renderers."""
