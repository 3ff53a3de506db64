"""The messages and tools of the chat that vLLM makes of a request of the Anthropic Messages API.

Source: vLLM ``entrypoints/anthropic/serving.py`` (`AnthropicServingMessages`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmroute.engines.vllm.bodies.errors import require, unsupported_field
from mmroute.engines.vllm.messages import BILLING_HEADER
from mmroute.errors import quoted
from mmroute.server.engines.vllm.bodies.chat_parts import image_part
from mmroute.server.engines.vllm.bodies.messages_protocol import (
    AnthropicContentBlock,
    AnthropicMessage,
    AnthropicTool,
    AnthropicToolChangeDefinition,
    AnthropicToolChangeReference,
)
from mmroute.server.engines.vllm.bodies.messages_rules import MessagesRules


def system_text(content: str | list[AnthropicContentBlock]) -> str:
    """The texts of a system message, without the line by which one client marks each request."""
    texts = [content] if isinstance(content, str) else [b.text for b in content if b.type == "text"]
    return "".join(text for text in texts if text and not text.startswith(BILLING_HEADER))


def messages_of(
    messages: Iterable[AnthropicMessage], rules: MessagesRules
) -> Iterator[dict[str, Any]]:
    """The messages of the chat, without the system message in front."""
    for message in messages:
        if message.role == "system":
            text = "" if rules.merges_system else system_text(message.content)
            if text:
                yield {"role": "system", "content": text}
        elif isinstance(message.content, str):
            yield {"role": message.role, "content": message.content}
        else:
            yield from _of_blocks(message.role, message.content)


def _of_blocks(role: str, blocks: Iterable[AnthropicContentBlock]) -> Iterator[dict[str, Any]]:
    """A message for each result of a tool, and then one message with all other blocks."""
    parts, calls, reasoning = list[dict[str, Any]](), list[dict[str, Any]](), list[str]()
    for block in blocks:
        match block.type:
            case "text" if block.text:
                parts.append({"type": "text", "text": block.text})
            case "image" if block.source:
                parts.append(_image(block.source))
            case "thinking" if block.thinking is not None:
                reasoning.append(block.thinking)
            case "tool_use":
                calls.append(_tool_call(block))
            case "tool_result" if role == "user":
                yield from _tool_results(block)
            case "tool_result":
                parts.append({"type": "text", "text": f"Tool result: {block.content or ''}"})
    if role == "user" and not parts:
        return
    only_text = len(parts) == 1 and parts[0]["type"] == "text"
    message = {
        "role": role,
        "reasoning": "".join(reasoning) if reasoning else None,
        "tool_calls": calls or None,
        "content": parts[0]["text"] if only_text else parts or None,
    }
    yield {name: value for name, value in message.items() if value is not None}


def _image(source: Mapping[str, Any]) -> dict[str, Any]:
    if source.get("type") == "url":
        return image_part(source.get("url", ""))
    media_type, data = source.get("media_type", "image/jpeg"), source.get("data", "")
    return image_part(f"data:{media_type};base64,{data}")


def _tool_call(block: AnthropicContentBlock) -> dict[str, Any]:
    if not block.id:
        raise unsupported_field(
            f"a tool_use block of {quoted(block.name)} has no id: the engine gives it one that is "
            "made of the time",
        )
    arguments = json.dumps(block.input or {})
    return {
        "id": block.id,
        "type": "function",
        "function": {"name": block.name or "", "arguments": arguments},
    }


def _tool_results(block: AnthropicContentBlock) -> Iterator[dict[str, Any]]:
    texts, images, references = list[str](), list[dict[str, Any]](), list[dict[str, Any]]()
    if isinstance(block.content, str):
        texts.append(block.content)
    for item in block.content if isinstance(block.content, list) else ():
        match item.get("type"):
            case "text":
                text = item.get("text", "")
                require(isinstance(text, str), f"a text of a tool result is {quoted(text)}")
                texts.append(text)
            case "image":
                source = item.get("source", {})
                require(isinstance(source, dict), f"a source of an image is {quoted(source)}")
                if source.get("type") != "url" or source.get("url"):
                    images.append(_image(source))
            case "tool_reference" if name := item.get("tool_name") or item.get("name"):
                references.append({"type": "tool_reference", "name": name})
    answers = {"role": "tool", "tool_call_id": block.tool_use_id or ""}
    yield answers | {"content": "\n".join(texts)}
    if images:
        yield {"role": "user", "content": images}
    if references:
        yield answers | {"content": references}


def tools_after(
    messages: Iterable[AnthropicMessage], declared: list[AnthropicTool] | None
) -> list[AnthropicTool] | None:
    """The tools after all additions and removals in the conversation."""
    changes = [
        block
        for message in messages
        if isinstance(message.content, list)
        for block in message.content
        if block.changes_tools
    ]
    if not changes:
        return declared
    tools = {tool.name: tool for tool in declared or ()}
    removed = set[str]()
    for block in changes:
        match block.tool:
            case AnthropicToolChangeDefinition(definition=tool):
                tools[tool.name] = tool
                removed.discard(tool.name)
            case AnthropicToolChangeReference(name=name):
                require(name in tools, f"{block.type}: no tool {quoted(name)} is declared in tools")
                if block.type == "tool_removal":
                    removed.add(name)
                else:
                    tools[name] = tools[name].model_copy(update={"defer_loading": None})
                    removed.discard(name)
    return [tool for name, tool in tools.items() if name not in removed]
