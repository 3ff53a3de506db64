"""Chats of gpt-oss, which vLLM's server renders by Harmony and not by the model's template.

Source: vLLM 0.33.0 ``renderers/online_renderer.py`` (`_make_request_with_harmony`) and
``entrypoints/openai/parser/harmony_utils.py``; oss-harmony 0.0.11, which vLLM requires.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    load_harmony_encoding,
)

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.renderer import Chat
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.geometry import TokenIds
from mmroute.items import Items
from mmroute.request import Request

__all__ = ["HarmonyChat"]

_EFFORTS: Final = {
    "low": ReasoningEffort.LOW,
    "medium": ReasoningEffort.MEDIUM,
    "high": ReasoningEffort.HIGH,
}
_INSTRUCTING: Final = ("system", "developer")
# Earlier analysis is dropped here, by vLLM's rule.
_KEPT: Final = RenderConversationConfig(auto_drop_analysis=False)


@cache
def _encoding() -> HarmonyEncoding:
    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


@dataclass(frozen=True, slots=True)
class HarmonyChat(Chat):
    """Renders chats by Harmony, which has a vocabulary of its own and gives token IDs at once.

    Template, template variables, `add_generation_prompt` and `continue_final_message` have no
    effect. Special tokens in a text are text.

    Attributes:
        start_date: what the engine writes for today.
    """

    start_date: str
    encoding: HarmonyEncoding = field(default_factory=_encoding, repr=False)

    @property
    def origins(self) -> Mapping[str, str]:
        return {"chat": "Harmony", "conversation_start_date": f"{self.start_date}, as was given"}

    def render(self, chat: ParsedChat, items: Items, request: Request) -> TokenIds:
        tools = normalize_tools(request.tools)
        effort = request.reasoning_effort
        if effort is not None and effort not in _EFFORTS:
            raise invalid(
                f"reasoning_effort must be one of {', '.join(_EFFORTS)} for this model, found "
                f"{quoted(effort)}"
            )
        try:
            messages = _without_earlier_analysis([
                _system(self.start_date, effort),
                *_conversation(chat.messages, tools),
            ])  # fmt: skip
            ids = self.encoding.render_conversation_for_completion(
                Conversation.from_messages(messages), Role.ASSISTANT, config=_KEPT
            )
            return np.array(_with_legacy_headers(self.encoding, ids), np.uint32)
        except Exception as error:  # of what it cannot render it raises whatever comes
            raise InexactError(
                Reason.CHAT_TEMPLATE_FAILED, f"Harmony refuses the messages: {error!r}"
            ) from error


def _system(start_date: str, effort: str | None) -> Message:
    content = SystemContent.new().with_conversation_start_date(start_date)
    if effort is not None:
        content = content.with_reasoning_effort(_EFFORTS[effort])
    return Message.from_role_and_content(Role.SYSTEM, content)


def _developer(instructions: str | None, tools: Sequence[Mapping[str, Any]] | None) -> Message:
    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    if tools:
        functions = [tool["function"] for tool in tools]
        content = content.with_function_tools([
            ToolDescription.new(f["name"], f["description"] or "", f["parameters"])
            for f in functions
        ])  # fmt: skip
    return Message.from_role_and_content(Role.DEVELOPER, content)


def _conversation(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> Iterator[Message]:
    """All messages after the system's; of a request's own system message it makes instructions."""
    instructions = None
    if messages[0]["role"] in _INSTRUCTING:
        instructions = _joined(messages[0].get("content"))
        messages = messages[1:]
    if instructions or tools:
        yield _developer(instructions, tools)
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    names = {call["id"]: call["function"]["name"] for call in calls}
    for message in messages:
        yield from _of_message(message, names)


def _of_message(message: Mapping[str, Any], names: Mapping[Any, str]) -> Iterator[Message]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        author = Author.new(Role.TOOL, f"functions.{names.get(message.get('tool_call_id'), '')}")
        result = Message.from_author_and_content(author, _joined(content) or "")
        yield result.with_channel("commentary").with_recipient("assistant")
    elif role in _INSTRUCTING:
        if (instructions := _joined(content)) is not None:
            yield _developer(instructions, None)
    elif role == "assistant":
        yield from _assistant(message, content)
    else:
        yield Message.from_role_and_contents(Role(role), _texts(content))


def _assistant(message: Mapping[str, Any], content: Any) -> Iterator[Message]:
    calls, reasoning = message.get("tool_calls"), message.get("reasoning")
    if calls and (preamble := _joined(content)):
        yield _of_assistant(preamble, "commentary")
    if reasoning:
        yield _of_assistant(reasoning, "analysis")
    for function in (call["function"] for call in calls or ()):
        call = _of_assistant(function["arguments"], "commentary")
        yield call.with_recipient(f"functions.{function['name']}").with_content_type("json")
    texts = [] if calls else _texts(content)
    if texts and texts[0].text:
        yield Message.from_role_and_contents(Role.ASSISTANT, texts).with_channel("final")


def _texts(content: Any) -> list[TextContent]:
    parts = [{"text": content or ""}] if isinstance(content, str | None) else content
    return [TextContent(text=part.get("text", "")) for part in parts]


def _of_assistant(text: str, channel: str) -> Message:
    return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)


def _joined(content: str | Sequence[Any] | None) -> str | None:
    """The texts of a content as one, None if it has none."""
    if content is None or isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else part.get("text") for part in content]
    texts = [text for text in texts if text is not None]
    return "".join(texts) if texts else None


def _without_earlier_analysis(messages: Sequence[Message]) -> list[Message]:
    """What the assistant thought before its last final answer is left out."""
    final = [
        i
        for i, m in enumerate(messages)
        if m.author.role == Role.ASSISTANT and m.channel == "final"
    ]
    last = final[-1] if final else -1
    return [m for i, m in enumerate(messages) if i >= last or m.channel != "analysis"]


def _with_legacy_headers(encoding: HarmonyEncoding, ids: list[int]) -> list[int]:
    """Tool calls with the recipient before the channel, as the model was trained, not behind it.

    ``<|start|>assistant<|channel|>commentary to=f <|constrain|>json<|message|>`` becomes
    ``<|start|>assistant to=f<|channel|>commentary json<|message|>``.
    """
    marks = [
        encoding.encode(mark, allowed_special="all")[0]
        for mark in ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>")
    ]
    starts = [i for i, token_id in enumerate(ids) if token_id == marks[0]]
    result: list[int] = []
    for begin, end in itertools.pairwise([*starts, len(ids)]):
        result += _with_legacy_header(encoding, ids[begin:end], marks)
    return result


def _with_legacy_header(
    encoding: HarmonyEncoding, ids: list[int], marks: Sequence[int]
) -> list[int]:
    """The IDs of one message."""
    _, channel_mark, type_mark, text_mark = marks
    try:
        text_at = ids.index(text_mark)
        channel_at = ids.index(channel_mark, 0, text_at)
        type_at = ids.index(type_mark, channel_at, text_at)
    except ValueError:
        return ids
    author = encoding.decode(ids[1:channel_at])
    address = encoding.decode(ids[channel_at + 1 : type_at])
    kind = encoding.decode(ids[type_at + 1 : text_at])
    channel, _, recipient = address.removesuffix(" ").partition(" to=")
    if author != "assistant" or not address.endswith(" ") or not (channel and recipient and kind):
        return ids
    return [
        ids[0],
        *encoding.encode(f"assistant to={recipient}"),
        channel_mark,
        *encoding.encode(f"{channel} {kind}"),
        *ids[text_at:],
    ]
