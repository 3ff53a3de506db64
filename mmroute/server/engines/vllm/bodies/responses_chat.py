"""The messages and tools of the chat that vLLM makes of a request of the OpenAI Responses API.

Source: vLLM ``entrypoints/openai/responses/utils.py`` and ``tool_parsers/utils.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmroute.engines.vllm.bodies.errors import refused, require, unsupported_field
from mmroute.engines.vllm.message_types import ChatCompletionToolsParam
from mmroute.engines.vllm.messages import BILLING_HEADER
from mmroute.engines.vllm.tools import MISTRAL_ID_LENGTH, OrderedFunction
from mmroute.server.engines.vllm.bodies.chat_parts import function_tool, image_part

# Keys of content parts that vLLM reads; all others reach the template.
_OF_TEXT: Final = frozenset({"type", "text", "prompt_cache_breakpoint"})
_OF_IMAGE: Final = frozenset({"type", "image_url", "prompt_cache_breakpoint"})
# With one of these vLLM reads the parts of a custom tool's result in another way.
_OF_CUSTOM: Final = frozenset({"id", "status"})
_CUSTOM_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The freeform text payload for this tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}


def messages_of(
    instructions: str | None, items: str | Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The messages of the chat."""
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(items, str):
        messages.append({"role": "user", "content": items})
        return messages
    for item in items:
        _add(messages, item)
    return messages


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Add an item to the last message if the model wrote that, or as a new message."""
    match item.get("type", "message"):
        case "message":
            _add_message(messages, item)
        case "function_call" | "custom_tool_call":
            call, last = _tool_call(item), _of_model(messages)
            calls = None if last is None else last.get("tool_calls") or []
            if last is not None and isinstance(calls, list):
                last["tool_calls"] = [*calls, call]
            else:
                messages.append({"role": "assistant", "tool_calls": [call]})
        case "reasoning":
            _add_of_model(messages, "reasoning", _reasoning(item))
        case "function_call_output" | "custom_tool_call_output":
            if item["type"] == "custom_tool_call_output" and not _OF_CUSTOM.isdisjoint(item):
                _check_no_images(item["output"])
            content = _content("tool", item["output"])
            messages.append({
                "role": "tool", "content": content, "tool_call_id": item.get("call_id"),
            })  # fmt: skip
        case kind:
            raise refused(f"Unsupported input item type: {kind}", "input")


def _add_message(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    content = item["content"]
    if item["role"] == "assistant":
        text: object = content
        if isinstance(content, list) and (content or "type" in item):
            written = content and content[0]["type"] != "refusal"
            require(written, "A message of the model must begin with a text.", "input")
            text = content[0].get("text")  # and no other
        if isinstance(text, str):
            _add_of_model(messages, "content", text)
            return
    messages.append({**item, "content": _content(item["role"], content)})


def _add_of_model(messages: list[dict[str, Any]], field: str, text: str) -> None:
    last = _of_model(messages)
    if last is not None and last.get(field) is None:
        last[field] = text
    else:
        messages.append({"role": "assistant", field: text})


def _of_model(messages: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The last message, if the model wrote it."""
    return messages[-1] if messages and messages[-1]["role"] == "assistant" else None


def _content(role: str, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(role, part) for part in content]


def _part(role: str, part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    require(kind != "input_file", f"Unsupported chat content part type: '{kind}'.", "type")
    if kind == "input_image":
        require(role != "tool" or "detail" in part, "An image of a tool needs its detail.", "input")
        extra = {name: value for name, value in part.items() if name not in _OF_IMAGE}
        return image_part(part.get("image_url"), **extra)
    text = part["text"]
    if role == "system" and text.startswith(BILLING_HEADER):
        raise unsupported_field(
            f"a part of a system message begins with {BILLING_HEADER}: the engine drops that line "
            "from chats, and keeps it here; send the message as one text",
        )
    extra = {name: value for name, value in part.items() if name not in _OF_TEXT}
    return {"type": "text", "text": text, **extra}


def _check_no_images(output: str | Sequence[Mapping[str, Any]]) -> None:
    if any(part["type"] == "input_image" for part in output if not isinstance(part, str)):
        raise unsupported_field(
            "input: the result of a custom tool with an image and an id or status is not covered"
        )


def _tool_call(item: Mapping[str, Any]) -> dict[str, Any]:
    if item["type"] == "custom_tool_call":
        name, arguments = item["name"], json.dumps({"input": item["input"]}, ensure_ascii=False)
    else:
        name, arguments = _flat_name(item.get("namespace"), item["name"]), item["arguments"]
    return {
        "id": item["call_id"],
        "type": "function",
        "function": OrderedFunction(name=name, arguments=arguments),
    }


def _reasoning(item: Mapping[str, Any]) -> str:
    require(not item.get("encrypted_content"), "Encrypted content is not supported.", "input")
    written = item.get("content") or item["summary"]
    return written[0]["text"] if written else ""


def has_long_call_ids(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a call or a result has an ID that vLLM shortens in chats of Mistral's own format."""
    ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    ids += [message.get("tool_call_id") or "" for message in messages]
    return any(len(call_id) > MISTRAL_ID_LENGTH for call_id in ids)


def tools_of(tools: Sequence[Mapping[str, Any]]) -> Iterator[ChatCompletionToolsParam]:
    """The tools that reach the template. Tools that the API itself runs do not."""
    for tool in tools:
        match tool["type"]:
            case "function":
                yield function_tool(tool["name"], tool)
            case "custom":
                described = {"description": tool.get("description")}
                yield function_tool(tool["name"], described | {"parameters": _CUSTOM_PARAMETERS})
            case "namespace":
                for inner in tool["tools"]:
                    if inner["type"] == "function":
                        yield function_tool(_flat_name(tool["name"], inner["name"]), inner)


def _flat_name(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name
