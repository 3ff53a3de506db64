"""Chats of gpt-oss, which vLLM's server renders by Harmony and not by the model's template.

Source: vLLM ``renderers/online_renderer.py`` (`_make_request_with_harmony`) and
``entrypoints/openai/parser/harmony_utils.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openai_harmony import Message

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import ParsedChat
from mmroute.engines.vllm import harmony
from mmroute.engines.vllm.message_schema import check_chat, schema_skips_parts
from mmroute.engines.vllm.messages import VllmChat, read_parts
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import InexactError, invalid, quoted
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class HarmonyChat(VllmChat):
    """Renders chats by Harmony, which has a vocabulary of its own and gives token IDs at once.

    Template, template variables, `add_generation_prompt` and `continue_final_message` have no
    effect. Special tokens in a text are text.
    """

    ignores_items: ClassVar[bool] = True  # Harmony's messages have only texts
    start_date: str  # the date that the engine writes as today's

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "Harmony", "conversation_start_date": f"{self.start_date}, as was given"}

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        """Check the messages only: vLLM does not parse the contents of these chats."""
        messages = check_chat(request)
        return ParsedChat(messages, [()] * len(messages), {})

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
        except InexactError:
            raise
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
    if messages and messages[0]["role"] in harmony.INSTRUCTING:
        instructions = _joined(messages[0])
        messages = messages[1:]
    functions = [tool["function"] for tool in tools or ()]
    yield from harmony.preamble(start_date, effort, instructions, functions)
    names: dict[Any, Any] = {}
    for message in messages:
        calls = message.get("tool_calls", ())
        if calls is None and message["role"] != "assistant":
            raise invalid(f"tool_calls of null in a message of the role {message['role']}")
        names |= {call["id"]: call.get("function", {}).get("name") for call in calls or ()}
    for message in messages:
        yield from _of_message(message, names)


def _of_message(message: Mapping[str, Any], names: Mapping[Any, Any]) -> Iterator[Message]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        name = names.get(message.get("tool_call_id", ""), "")
        yield harmony.result(f"functions.{name}", _joined(message) or "")
        return
    if role == "assistant" and message.get("tool_calls"):
        yield from _calls(message, message["tool_calls"])
        return
    if not isinstance(content, str | None):
        content = read_parts(message)
    made = harmony.of_role(role, content or "")
    if role == "assistant":
        if reasoning := message.get("reasoning"):
            yield harmony.of_assistant(reasoning, "analysis")
        if made.content and made.content[0].text:
            yield made.with_channel("final")
    elif role not in harmony.INSTRUCTING:
        yield made
    elif (instructions := _joined(message)) is not None:
        yield harmony.developer(instructions)


def _joined(message: Mapping[str, Any]) -> str | None:
    """The texts of a message. vLLM finds none in a content whose parts its schema skips."""
    return None if schema_skips_parts(message) else harmony.joined(message.get("content"))


def _calls(message: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    if preamble := _joined(message):
        yield harmony.of_assistant(preamble, "commentary")
    if reasoning := message.get("reasoning"):
        yield harmony.of_assistant(reasoning, "analysis")
    for call in calls:
        function = call.get("function", {})  # which the call of a custom tool does not have
        yield harmony.call(function.get("name", ""), function.get("arguments", ""))
