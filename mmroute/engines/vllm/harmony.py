"""Messages of Harmony, and the token IDs that vLLM makes of a conversation of them.

Source: vLLM ``entrypoints/openai/parser/harmony_utils.py``; oss-harmony 0.0.11, which vLLM
requires.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyEncodingName,
    HarmonyError,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    load_harmony_encoding,
)

from mmroute.errors import InexactError, ModelError, Reason, install_command
from mmroute.token_ids import TokenIds

EFFORTS: Final = {
    "low": ReasoningEffort.LOW,
    "medium": ReasoningEffort.MEDIUM,
    "high": ReasoningEffort.HIGH,
}
"""The values of `reasoning_effort` that Harmony has."""
INSTRUCTING: Final = ("system", "developer")
"""Roles whose messages are instructions."""
# Earlier analysis is dropped here, by vLLM's rule.
_KEPT: Final = RenderConversationConfig(auto_drop_analysis=False)


@cache
def encoding() -> HarmonyEncoding:
    """Harmony's vocabulary."""
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    except HarmonyError as error:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"Harmony's vocabulary cannot be loaded ({error}): "
            f"{install_command('gpt-oss')}, with --force-reinstall",
        ) from error


@cache
def _mark(text: str) -> int:
    """The ID of a special token."""
    token_id: int = encoding().encode(text, allowed_special="all")[0]
    return token_id


def _encoded(text: str) -> list[int]:
    """The token IDs of a text."""
    # Looking for special tokens takes milliseconds. All of them begin with these characters.
    ids: list[int] = encoding().encode(text, disallowed_special="all" if "<|" in text else ())
    return ids


def preamble(
    start_date: str,
    effort: str | None,
    instructions: str | None,
    functions: Sequence[Mapping[str, Any]],
) -> Iterator[Message]:
    """The messages before a conversation."""
    content = SystemContent.new().with_conversation_start_date(start_date)
    if effort is not None:
        content = content.with_reasoning_effort(EFFORTS[effort])
    yield Message.from_role_and_content(Role.SYSTEM, content)
    if instructions or functions:
        yield developer(instructions, functions)


def developer(instructions: str | None, functions: Sequence[Mapping[str, Any]] = ()) -> Message:
    """A message with instructions and the functions that the model may call."""
    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    if functions:
        content = content.with_function_tools([
            ToolDescription.new(f["name"], f.get("description") or "", f.get("parameters"))
            for f in functions
        ])  # fmt: skip
    return Message.from_role_and_content(Role.DEVELOPER, content)


def of_role(role: str, content: Any) -> Message:
    """A message with a text, or with parts. A part without a text is an empty text."""
    parts = [{"text": content}] if isinstance(content, str) else content
    texts = [TextContent(text=part.get("text", "")) for part in parts]
    return Message.from_role_and_contents(Role(role), texts)


def of_assistant(text: str, channel: str) -> Message:
    """A message of the model on a channel."""
    return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)


def call(name: str, arguments: str, content_type: str = "json") -> Message:
    """The model's call of a function."""
    message = of_assistant(arguments, "commentary").with_recipient(f"functions.{name}")
    return message.with_content_type(content_type)


def result(author: str, text: str) -> Message:
    """A message with the result of a tool."""
    message = Message.from_author_and_content(Author.new(Role.TOOL, author), text)
    return message.with_channel("commentary").with_recipient("assistant")


def joined(content: str | Sequence[Any] | None) -> str | None:
    """The texts of a content, joined; None if it has no text."""
    if content is None or isinstance(content, str):
        return content
    given = [
        part.get("text") if isinstance(part, Mapping) else part
        for part in content
        if isinstance(part, str | Mapping)
    ]
    texts = [text for text in given if text is not None]
    return "".join(texts) if texts else None


def token_ids(
    messages: Sequence[Message], *, answered: bool = True, legacy_headers: bool = True
) -> TokenIds:
    """The prompt. Special tokens in a text are text."""
    conversation = Conversation.from_messages(_without_earlier_analysis(messages))
    try:
        if answered:
            ids = encoding().render_conversation_for_completion(
                conversation, Role.ASSISTANT, config=_KEPT
            )
        else:
            ids = encoding().render_conversation(conversation, config=_KEPT)
        return np.array(_with_legacy_headers(ids) if legacy_headers else ids, np.uint32)
    except Exception as error:  # of what it cannot render it raises whatever comes
        raise refused(error) from error


def refused(error: Exception) -> InexactError:
    """The error for a conversation that Harmony refuses."""
    return InexactError(Reason.CHAT_TEMPLATE_FAILED, f"Harmony refuses the messages: {error!r}")


def _without_earlier_analysis(messages: Sequence[Message]) -> list[Message]:
    """The messages without the assistant's analysis before its last final answer."""
    final = [
        i
        for i, m in enumerate(messages)
        if m.author.role == Role.ASSISTANT and m.channel == "final"
    ]
    last = final[-1] if final else -1
    return [m for i, m in enumerate(messages) if i >= last or m.channel != "analysis"]


def _with_legacy_headers(ids: list[int]) -> list[int]:
    """Tool calls with the recipient before the channel, as the model was trained, not behind it.

    ``<|start|>assistant<|channel|>commentary to=f <|constrain|>json<|message|>`` becomes
    ``<|start|>assistant to=f<|channel|>commentary json<|message|>``.
    """
    start = _mark("<|start|>")
    starts = [i for i, token_id in enumerate(ids) if token_id == start]
    result: list[int] = []
    for begin, end in itertools.pairwise([*starts, len(ids)]):
        result += _with_legacy_header(ids[begin:end])
    return result


def _with_legacy_header(ids: list[int]) -> list[int]:
    """The IDs of one message."""
    try:
        text_at = ids.index(_mark("<|message|>"))
        channel_at = ids.index(_mark("<|channel|>"), 0, text_at)
        type_at = ids.index(_mark("<|constrain|>"), channel_at, text_at)
    except ValueError:
        return ids
    author = encoding().decode(ids[1:channel_at])
    address = encoding().decode(ids[channel_at + 1 : type_at])
    kind = encoding().decode(ids[type_at + 1 : text_at])
    channel, _, recipient = address.removesuffix(" ").partition(" to=")
    if author != "assistant" or not address.endswith(" ") or not (channel and recipient and kind):
        return ids
    return [
        ids[0],
        *_encoded(f"assistant to={recipient}"),
        _mark("<|channel|>"),
        *_encoded(f"{channel} {kind}"),
        *ids[text_at:],
    ]
