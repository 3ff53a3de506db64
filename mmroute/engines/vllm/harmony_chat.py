"""Chats of gpt-oss, which vLLM's server renders by Harmony and not by the model's template.

Source: vLLM ``renderers/online_renderer.py`` (`_make_request_with_harmony`) and
``entrypoints/openai/parser/harmony_utils.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openai_harmony import Message

from mmroute.chat.conversation import ParsedChat
from mmroute.engines.vllm import harmony
from mmroute.engines.vllm.messages import VllmChat
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import invalid, quoted
from mmroute.geometry import TokenIds
from mmroute.requests.items import Items
from mmroute.requests.request import Request


@dataclass(frozen=True, slots=True)
class HarmonyChat(VllmChat):
    """Renders chats by Harmony, which has a vocabulary of its own and gives token IDs at once.

    Template, template variables, `add_generation_prompt` and `continue_final_message` have no
    effect. Special tokens in a text are text.

    Attributes:
        start_date: the date that the engine writes as today's.
    """

    ignores_items: ClassVar[bool] = True  # Harmony's messages have only texts
    start_date: str

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "Harmony", "conversation_start_date": f"{self.start_date}, as was given"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        tools = normalize_tools(request.tools)
        effort = request.reasoning_effort
        if effort is not None and effort not in harmony.EFFORTS:
            raise invalid(
                f"reasoning_effort must be one of {', '.join(harmony.EFFORTS)} for this model, "
                f"found {quoted(effort)}"
            )
        try:
            messages = list(_messages(self.start_date, effort, chat.messages, tools))
        except Exception as error:  # Harmony's classes refuse by errors of many kinds
            raise harmony.refused(error) from error
        return harmony.token_ids(messages)


def _messages(
    start_date: str,
    effort: str | None,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
) -> Iterator[Message]:
    """The conversation. Instructions in its first message go into the developer message."""
    instructions = None
    if messages[0]["role"] in harmony.INSTRUCTING:
        instructions = harmony.joined(messages[0].get("content"))
        messages = messages[1:]
    functions = [tool["function"] for tool in tools or ()]
    yield from harmony.preamble(start_date, effort, instructions, functions)
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    names = {call["id"]: call["function"]["name"] for call in calls}
    for message in messages:
        yield from _of_message(message, names)


def _of_message(message: Mapping[str, Any], names: Mapping[Any, str]) -> Iterator[Message]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        name = names.get(message.get("tool_call_id"), "")
        yield harmony.result(f"functions.{name}", harmony.joined(content) or "")
    elif role in harmony.INSTRUCTING:
        if (instructions := harmony.joined(content)) is not None:
            yield harmony.developer(instructions)
    elif role == "assistant":
        yield from _assistant(message, content)
    else:
        yield harmony.of_role(role, content or "")


def _assistant(message: Mapping[str, Any], content: Any) -> Iterator[Message]:
    calls, reasoning = message.get("tool_calls"), message.get("reasoning")
    if calls and (preamble := harmony.joined(content)):
        yield harmony.of_assistant(preamble, "commentary")
    if reasoning:
        yield harmony.of_assistant(reasoning, "analysis")
    for function in (call["function"] for call in calls or ()):
        yield harmony.call(function["name"], function["arguments"])
    if not calls:
        answer = harmony.of_role("assistant", content or "")
        if answer.content and answer.content[0].text:
            yield answer.with_channel("final")
