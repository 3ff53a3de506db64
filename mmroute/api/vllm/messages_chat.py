"""The chat that vLLM makes of a request of the Anthropic Messages API.

Source: vLLM ``entrypoints/anthropic/serving.py`` (`AnthropicServingMessages`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from mmroute.api.vllm.chat_completion import ChatCompletionRequest
from mmroute.api.vllm.chat_parts import function_tool, image_part
from mmroute.api.vllm.errors import of_reason, require
from mmroute.api.vllm.fields import (
    ChatCompletionNamedFunction,
    ChatCompletionNamedToolChoiceParam,
    JsonSchemaResponseFormat,
    ResponseFormat,
    StreamOptions,
)
from mmroute.api.vllm.messages_protocol import (
    AnthropicContentBlock,
    AnthropicMessage,
    AnthropicMessagesRequest,
    AnthropicTool,
    AnthropicToolChangeDefinition,
    AnthropicToolChangeReference,
)
from mmroute.api.vllm.messages_rules import DISABLED_EFFORT_OPTION, MessagesRules
from mmroute.engines.vllm.messages import BILLING_HEADER
from mmroute.errors import Reason, quoted

_CHOICES: Final[Mapping[str, Literal["auto", "required", "none"]]] = {
    "auto": "auto", "any": "required", "none": "none",
}  # fmt: skip
_COPIED: Final = (
    "model", "max_tokens", "temperature", "top_p", "top_k", "watermarking", "cache_salt",
    "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "chat_template_kwargs", "mm_payload",
)  # fmt: skip


def chat_of_messages(
    request: AnthropicMessagesRequest, rules: MessagesRules
) -> ChatCompletionRequest:
    """The chat of a request.

    Raises:
        ApiError: 400: vLLM refuses it; 422 `unsupported_field`.
    """
    chat = ChatCompletionRequest(
        messages=[*_system(request, rules), *_messages(request.messages, rules)],
        max_completion_tokens=request.max_tokens,
        stop=request.stop_sequences,
        **{name: getattr(request, name) for name in _COPIED},
    )
    if request.stream:
        chat.stream = True
        chat.stream_options = StreamOptions(include_usage=True, continuous_usage_stats=True)
    _set_output(chat, request, rules)
    _set_tools(chat, request)
    return chat


def _system(request: AnthropicMessagesRequest, rules: MessagesRules) -> Iterator[dict[str, Any]]:
    texts = []
    if isinstance(request.system, str):
        texts.append(request.system)
    elif request.system is not None:
        texts.append(_system_text(request.system))
    if rules.merges_system:
        texts += [_system_text(m.content) for m in request.messages if m.role == "system"]
    if any(texts):
        yield {"role": "system", "content": "".join(texts)}


def _system_text(content: str | list[AnthropicContentBlock]) -> str:
    """The texts of a system message, without the line by which one client marks each request."""
    texts = [content] if isinstance(content, str) else [b.text for b in content if b.type == "text"]
    return "".join(text for text in texts if text and not text.startswith(BILLING_HEADER))


def _messages(
    messages: Iterable[AnthropicMessage], rules: MessagesRules
) -> Iterator[dict[str, Any]]:
    for message in messages:
        if message.role == "system":
            text = "" if rules.merges_system else _system_text(message.content)
            if text:
                yield {"role": "system", "content": text}
        elif isinstance(message.content, str):
            yield {"role": message.role, "content": message.content}
        else:
            yield from _of_blocks(message.role, message.content)


def _of_blocks(role: str, blocks: Iterable[AnthropicContentBlock]) -> Iterator[dict[str, Any]]:
    """The messages of the results of tools, and after them one of all other blocks."""
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
        raise of_reason(
            Reason.UNSUPPORTED_FIELD,
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


def _set_output(
    chat: ChatCompletionRequest, request: AnthropicMessagesRequest, rules: MessagesRules
) -> None:
    config, thinking = request.output_config, request.thinking
    if config is not None and config.format is not None and config.format.json_schema:
        schema = JsonSchemaResponseFormat(name="json_schema", schema=config.format.json_schema)
        chat.response_format = ResponseFormat(type="json_schema", json_schema=schema)
    if config is not None and config.effort is not None:
        chat.reasoning_effort = config.effort
    if thinking is None:
        return
    if thinking.type == "enabled":
        chat.thinking_token_budget = thinking.budget_tokens
    elif thinking.type == "disabled":
        if rules.disabled_effort is None:
            raise of_reason(
                Reason.UNSUPPORTED_FIELD,
                f"thinking: the engine's {DISABLED_EFFORT_OPTION} decides what a model without "
                "thinking is told, and it is not covered",
            )
        chat.reasoning_effort = rules.disabled_effort


def _set_tools(chat: ChatCompletionRequest, request: AnthropicMessagesRequest) -> None:
    choice, tools = request.tool_choice, _tools(request)
    if choice is None:
        chat.tool_choice = None if tools is None else "auto"
    else:
        chat.parallel_tool_calls = not choice.disable_parallel_tool_use
        chat.tool_choice = _CHOICES.get(choice.type) or ChatCompletionNamedToolChoiceParam(
            function=ChatCompletionNamedFunction(name=choice.name or "")
        )
    if tools is not None:
        chat.tools = [
            function_tool(tool.name, {**tool.model_dump(), "parameters": tool.input_schema})
            for tool in tools
        ]


def _tools(request: AnthropicMessagesRequest) -> list[AnthropicTool] | None:
    """The tools after all additions and removals in the conversation."""
    changes = [
        block
        for message in request.messages
        if isinstance(message.content, list)
        for block in message.content
        if block.changes_tools
    ]
    if not changes:
        return request.tools
    tools = {tool.name: tool for tool in request.tools or ()}
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
