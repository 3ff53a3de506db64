"""Chats of gpt-oss, which vLLM's Rust frontend renders by Harmony, as the Python one does.

It makes Harmony's messages by rules of its own.

Source: vLLM ``rust/src/chat/src/renderer/harmony/mod.rs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from openai_harmony import Message as HarmonyMessage

from mmroute.chat.cache import ChatCache
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.engines.vllm import harmony
from mmroute.engines.vllm_rust.messages import Message, messages_of, parsed, read_messages
from mmroute.engines.vllm_rust.options import check_options, hides_tools, tools_of_request
from mmroute.engines.vllm_rust.parsers import reasoning_of
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

_DEFAULT_EFFORT: Final = "medium"


@dataclass(frozen=True, slots=True)
class RustHarmonyChat(Chat):
    """Renders chats by Harmony, which has a vocabulary of its own and gives token IDs at once."""

    start_date: str  # the date that the engine writes as today's
    default_kwargs: Mapping[str, Any]  # variables where a request does not set them
    earlier: bool = False  # whether the frontend is that of 0.32.0

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "Harmony", "conversation_start_date": f"{self.start_date}, as was given"}

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        empty = "" if self.earlier else "{}"
        messages = read_messages(request.messages, empty_arguments=empty)
        check_options(request, messages)
        return parsed(messages)

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        if request.continue_final_message:
            raise InexactError(
                Reason.CHAT_TEMPLATE_FAILED,
                "vLLM's Rust frontend refuses continue_final_message for this model",
            )
        effort = self._effort(request)
        messages = messages_of(chat)
        tools = tools_of_request(request)
        if hides_tools(request, earlier=self.earlier):  # those of developers stay
            tools = []
        try:
            conversation = list(_conversation(self.start_date, effort, messages, tools))
        except InexactError:
            raise
        except Exception as error:  # Harmony's classes refuse by errors of many kinds
            raise harmony.refused(error) from error
        return harmony.token_ids(
            conversation, answered=request.add_generation_prompt, legacy_headers=False
        )

    def _effort(self, request: Request) -> str:
        """The effort that a request or the server asks for."""
        enabled, effort = reasoning_of(request, self.default_kwargs)
        if enabled is not False and effort is None:
            effort = _DEFAULT_EFFORT
        if enabled is False or effort not in harmony.EFFORTS:
            raise invalid(
                f"reasoning_effort must be one of {', '.join(harmony.EFFORTS)} for this model, "
                f"found {quoted(effort if enabled else 'none')}"
            )
        return str(effort)


def _conversation(
    start_date: str,
    effort: str,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
) -> Iterator[HarmonyMessage]:
    """The conversation. Instructions in its first message go into the developer message."""
    first, instructions, functions = messages[0], "", list(tools)
    if first.role in harmony.INSTRUCTING:
        instructions, messages = first.text, messages[1:]
        functions += first.tools
    described = [_described(tool) for tool in functions]
    yield from harmony.preamble(start_date, effort, instructions or None, described)
    names = {call.id: call.name for message in messages for call in message.calls}
    for message in messages:
        yield from _of_message(message, names)


def _described(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function as Harmony gets it. To the frontend no parameters are any, not none."""
    function: Mapping[str, Any] = tool["function"]
    return function if function["parameters"] is not None else {**function, "parameters": {}}


def _of_message(message: Message, names: Mapping[str, str]) -> Iterator[HarmonyMessage]:
    match message.role:
        case "system" | "developer":
            own = [_described(tool) for tool in message.tools]
            yield harmony.developer(message.text or None, own)
        case "user":
            yield harmony.of_role("user", message.text)
        case "assistant":
            yield from _assistant(message)
        case "tool":
            if message.call_id not in names:
                raise InexactError(
                    Reason.CHAT_TEMPLATE_FAILED,
                    f"a tool answers the call {quoted(message.call_id)}, which no message makes",
                )
            yield harmony.result(f"functions.{names[message.call_id]}", message.text)
        case role:
            raise invalid(f"the engine takes no message of the role {quoted(role)} for this model")


def _assistant(message: Message) -> Iterator[HarmonyMessage]:
    if message.calls and message.text:
        yield harmony.of_assistant(message.text, "commentary")
    if message.reasoning:
        yield harmony.of_assistant(message.reasoning, "analysis")
    for call in message.calls:
        yield harmony.call(call.name, call.arguments, "<|constrain|>json")
    if message.text and not message.calls:
        yield harmony.of_assistant(message.text, "final")
