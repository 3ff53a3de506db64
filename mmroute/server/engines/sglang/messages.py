"""Requests of the Anthropic Messages API as the chats that SGLang makes of them.

Source: SGLang 0.5.23 ``srt/entrypoints/anthropic/serving.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmroute.errors import InexactError, Reason, invalid
from mmroute.server.engines.sglang.messages_schema import (
    Choice,
    CountedMessages,
    CustomTool,
    Message,
)
from mmroute.server.engines.sglang.model import ChatRules

_REFERENCE: Final = "tool_reference"


def chat_of(body: CountedMessages, rules: ChatRules) -> dict[str, Any]:
    """The body of the chat. Raises `InexactError`."""
    messages: list[dict[str, Any]] = []
    if system := list(_system(body, rules)):
        messages.append({"role": "system", "content": "\n".join(system)})
    for message in body.messages:
        if message.role != "system" or rules.inline_system:
            messages.extend(_turns(message, rules))
    kwargs: dict[str, Any] = {}
    if body.thinking is not None:
        kwargs |= rules.thinking(enabled=body.thinking.type != "disabled")
    if body.output_config is not None and (effort := body.output_config.effort) is not None:
        kwargs["reasoning_effort"] = "max" if effort == "xhigh" else effort
    tools = [_tool(tool) for tool in body.tools or () if isinstance(tool, CustomTool)]
    return {
        "model": body.model,
        "messages": messages,
        "chat_template_kwargs": kwargs,
        "tools": tools or None,
        "tool_choice": _choice(body.tool_choice, tools),
    }


def check_output(body: CountedMessages, chat: Mapping[str, Any]) -> None:
    """Refuse an answer in JSON beside a call of a tool that must be."""
    wanted = body.output_config is not None and body.output_config.format is not None
    if wanted and chat["tool_choice"] not in ("auto", "none"):
        raise invalid("output_config: no format can be asked for where a tool must be called")


def _system(body: CountedMessages, rules: ChatRules) -> Iterator[str]:
    if isinstance(body.system, str):
        if body.system.strip():
            yield body.system
    else:
        for block in body.system or ():
            if block.type == "text" and block.text:
                yield block.text
    for message in () if rules.inline_system else body.messages:
        if message.role == "system":
            content = message.content
            if isinstance(content, str):
                texts = [content]
            else:
                texts = [block.text for block in content if block.type == "text"]
            if kept := list(filter(None, map(str.strip, texts))):
                yield "\n".join(kept)


def _turns(message: Message, rules: ChatRules) -> Iterator[dict[str, Any]]:
    """The messages of a chat that one turn becomes."""
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    calls = [block for block in message.content if block.type == "tool_use"]
    made: dict[str, Any] = {"role": message.role}
    if calls:
        made["tool_calls"] = [_call(block.id, block.name, block.input) for block in calls]
    parts = list(_thoughts(message, rules)) if message.role == "assistant" else []
    for block in message.content:
        if block.type == "tool_result" and message.role == "user":
            if parts:
                yield {"role": "user", "content": _joined(parts)}
                parts = []
            name = block.tool_use_id or block.id or ""
            for content in _results(block.content):
                yield {"role": "tool", "tool_call_id": name, "content": content}
        else:
            parts += _parts(block)
    if parts:
        yield {**made, "content": _joined(parts)}
    elif calls:
        yield made
    elif message.role != "user":
        yield {**made, "content": ""}


def _parts(block: Any) -> Iterator[dict[str, Any]]:
    """The parts of a message that a block becomes."""
    match block.type:
        case "text":
            yield _text(block.text)
        case "image":
            yield from _image(block.source)
        case "search_result":
            yield from _search_result(block.model_dump())
        case "tool_result":
            said = "\n".join(_said(block.content))
            yield _text(f"Tool result: {said}")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts


def _thoughts(message: Message, rules: ChatRules) -> Iterator[dict[str, Any]]:
    blocks = message.content if isinstance(message.content, list) else []
    if any(block.type == "redacted_thinking" for block in blocks):
        raise invalid("the engine takes no blocks of type redacted_thinking")
    thoughts = [block.thinking for block in blocks if block.type == "thinking" and block.thinking]
    if thoughts and (wrapped := rules.thought("\n".join(thoughts))):
        yield _text(wrapped)


def _call(name: str, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if not name:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD, "tool_use: the engine draws an id for a call without one"
        )
    return {
        "id": name,
        "type": "function",
        "function": {"name": function, "arguments": dict(arguments)},
    }


def _image(source: object) -> Iterator[dict[str, Any]]:
    if not isinstance(source, Mapping):
        return
    if source.get("type") == "base64":
        if data := source.get("data", ""):
            kind = source.get("media_type", "image/png")
            yield {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    elif url := source.get("url"):
        yield {"type": "image_url", "image_url": {"url": url}}


def _search_result(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    told = []
    if title := item.get("title"):
        told.append(f"Title: {title}")
    source = item.get("source")
    if isinstance(source, Mapping):
        source = source.get("url") or source.get("text")
    if source:
        told.append(f"Source: {source}")
    parts = [part for part in item.get("content") or () if part.get("type") == "text"]
    texts = [part["text"] for part in parts if part.get("text")]
    if not all(isinstance(text, str) for text in texts):
        raise invalid("search_result: the text of a part must be a string")
    if texts:
        told.append("Content: " + "\n".join(texts))
    if told:
        yield _text("\n".join(told))


def _result_parts(content: Any) -> Iterator[dict[str, Any]]:
    """The parts of the result of a tool, which is a list of blocks."""
    for block in content:
        item = block.model_dump(exclude_none=True)
        match item["type"]:
            case "text" if item["text"]:
                yield _text(item["text"])
            case "image":
                yield from _image(item.get("source"))
            case "tool_reference":
                if name := item.get("tool_name") or item.get("name"):
                    yield {"type": _REFERENCE, "name": name}
            case "search_result":
                yield from _search_result(item)


def _said(content: Any) -> Iterator[str]:
    """The texts of the result of a tool."""
    if isinstance(content, list):
        yield from (part["text"] for part in _result_parts(content) if part["type"] == "text")
    else:
        yield content or ""


def _results(content: Any) -> list[str | list[dict[str, Any]]]:
    """The contents of the messages that a result becomes: runs of references stand alone."""
    if not isinstance(content, list):
        return [content or ""]
    groups: list[list[dict[str, Any]]] = []
    for part in _result_parts(content):
        refers = part["type"] == _REFERENCE
        if not groups or (groups[-1][0]["type"] == _REFERENCE) != refers:
            groups.append([])
        groups[-1].append(part)
    return [_joined(group) for group in groups] or [""]


def _tool(tool: CustomTool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": function, "defer_loading": tool.defer_loading}


def _choice(choice: Choice | None, tools: Sequence[Mapping[str, Any]]) -> Any:
    if choice is None or choice.type in ("auto", "none"):
        return "auto" if choice is None else choice.type
    if not tools:
        raise invalid(f"tool_choice {choice.type!r} needs a tool of the client's own")
    if choice.type == "any":
        return "required"
    if all(tool["function"]["name"] != choice.name for tool in tools):
        raise invalid("tool_choice names a tool that is not among the tools")
    return {"type": "function", "function": {"name": choice.name}}
