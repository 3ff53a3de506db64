"""The conversation that vLLM makes of a request of the OpenAI Responses API for gpt-oss.

Source: vLLM ``renderers/online_renderer.py`` (`_render_responses_with_harmony`),
``entrypoints/openai/responses/harmony.py`` and ``entrypoints/openai/parser/harmony_utils.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from openai_harmony import Author, Message, Role, TextContent

from mmroute.engines.vllm import harmony
from mmroute.engines.vllm.bodies.errors import refused, require, unsupported_field
from mmroute.engines.vllm.harmony_chat import HarmonyChat
from mmroute.errors import quoted
from mmroute.server.engines.vllm.bodies.responses import Reasoning
from mmroute.server.engines.vllm.bodies.responses_items import Item, Tool
from mmroute.token_ids import TokenIds

_DESCRIBED: Final = frozenset({"code_interpreter", "container", "web_search_preview"})
"""Tools that a tool server describes, by their type or as the label of an MCP server."""
_NOT_SHOWN: Final = (Role.SYSTEM, Role.DEVELOPER)


class ConversationFields(Protocol):
    """The fields of a request that decide its conversation."""

    input: str | list[Item]
    instructions: str | None
    previous_input_messages: list[dict[str, Any]] | None
    reasoning: Reasoning | None
    tools: list[Tool]


def conversation_ids(
    request: ConversationFields, chat: HarmonyChat, *, tool_server: bool
) -> TokenIds:
    """The token IDs of the prompt."""
    effort = None if request.reasoning is None else request.reasoning.effort
    require(
        effort is None or effort in harmony.EFFORTS,
        f"reasoning_effort={effort!r} is not supported by Harmony. Supported values are: "
        f"{', '.join(harmony.EFFORTS)}.",
        "reasoning_effort",
    )
    instructions, given = request.instructions, request.input
    if instructions is None and given and not isinstance(given, str):
        first: Mapping[str, Any] = given[0]
        if first.get("role") in harmony.INSTRUCTING:
            instructions, given = harmony.joined(first.get("content")), given[1:]
    functions = _functions(request.tools, tool_server=tool_server)
    earlier = request.previous_input_messages or ()
    messages = [
        *harmony.preamble(chat.start_date, effort, instructions, functions),
        *_earlier(earlier),
    ]
    if not isinstance(given, str):
        messages += _of_items(given)
    elif given or not earlier:
        messages.append(harmony.of_role("user", given))
    return harmony.token_ids(messages)


def _functions(
    tools: Sequence[Mapping[str, Any]], *, tool_server: bool
) -> Sequence[Mapping[str, Any]]:
    labels = {tool.get("server_label") for tool in tools if tool["type"] == "mcp"}
    kinds = {tool["type"] for tool in tools} - {"mcp"}
    if tool_server and _DESCRIBED & (kinds | labels):
        raise unsupported_field(
            "tools: the engine's tool server describes its tools in the prompt, and these "
            "descriptions are not known here",
        )
    if kinds <= _DESCRIBED:
        return ()
    for tool in tools:
        known = tool["type"] == "function" or tool["type"] in _DESCRIBED
        require(known, f"tool type {tool['type']!r} is not supported.", "tools")
    return [tool for tool in tools if tool["type"] == "function"]


def _of_items(items: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    names: dict[str, str] = {}  # by the ID of the call
    for item in items:
        match item.get("type", "message"):
            case "message":
                yield from _of_message(item["role"], item["content"])
            case "reasoning":
                if texts := [part["text"] for part in item.get("content") or ()]:
                    yield harmony.of_assistant("\n".join(texts), "analysis")
            case "function_call":
                names[item["call_id"]] = item["name"]
                yield harmony.call(item["name"], item["arguments"])
            case "function_call_output":
                name, text = names.get(item.get("call_id") or ""), item["output"]
                if name is None:
                    raise refused(
                        f"No call message found for {quoted(item.get('call_id'))}", "input"
                    )
                if not isinstance(text, str):
                    raise refused(
                        "The output of a function must be a text for this model.", "input"
                    )
                yield harmony.result(f"functions.{name}", text)
            case kind:
                raise refused(f"Unknown input type: {kind}", "input")


def _of_message(role: str, content: Any) -> Iterator[Message]:
    if role in harmony.INSTRUCTING:
        if text := harmony.joined(content):
            yield harmony.developer(text)
        return
    message = harmony.of_role(role, content)
    yield message.with_channel("final") if role == "assistant" else message


def _earlier(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of `previous_input_messages`, without instructions: this request has its own."""
    try:
        made = [made for message in messages for made in _of_earlier(message)]
    except (AttributeError, TypeError, ValueError) as error:  # their shape was not checked
        raise refused(f"previous_input_messages: {error}") from None
    return [message for message in made if message.author.role not in _NOT_SHOWN]


def _of_earlier(message: Mapping[str, Any]) -> Iterator[Message]:
    """The messages that an earlier message stands for. It has Harmony's form or a chat's."""
    get = message.get
    if isinstance(get("author"), Mapping):
        yield _of_author(message)
    elif get("role") is None:
        raise refused(f"Message has no 'role' key: {quoted(message)}", "input")
    elif get("role") == "assistant" and get("tool_calls"):
        for function in (one.get("function", {}) for one in message["tool_calls"]):
            yield harmony.call(function.get("name", ""), function.get("arguments") or "")
    elif get("role") == "tool":
        name = get("name", "")
        author = name if not name or name.startswith("functions.") else f"functions.{name}"
        yield harmony.result(author, harmony.joined(get("content")) or "")
    elif get("role") not in harmony.INSTRUCTING:
        yield harmony.of_role(message["role"], get("content", ""))


def _of_author(message: Mapping[str, Any]) -> Message:
    role, name = Role(message["author"].get("role")), message["author"].get("name")
    content = message.get("content")
    if not isinstance(content, list):
        content = [{"text": content if isinstance(content, str) else ""}]
    texts = [TextContent(text=part.get("text", "")) for part in content]
    author = Author.new(role, name) if name else Author(role=role)
    given = {name: message.get(name) or None for name in ("channel", "recipient", "content_type")}
    return Message(author=author, content=texts, **given)
