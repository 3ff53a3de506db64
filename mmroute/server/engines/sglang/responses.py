"""Requests of the OpenAI Responses API as the chats that SGLang makes of them.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/serving_responses.py``, ``responses_adapters.py``,
``protocol.py`` (`ResponsesRequest`).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, model_validator

from mmroute.engines.sglang.message_schema import NamedEffort, arguments_of
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.server.engines.sglang.model import ChatRules

_LABEL: Final = "Developer instructions:"
_STATE: Final = "sglang-reasoning-v1."
_MOST_STATE: Final = 1 << 22  # characters of thoughts that a client may send back
_OF_ITEM: Final = frozenset({"id", "status", "type"})
_KINDS: Final = frozenset({"function", "custom"})
# The parsers by which calls and tools of namespaces reach the prompt, or may.
_NAMESPACES: Final = frozenset({"muse", "auto"})
_PAYLOAD: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The freeform text payload for this tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}


class _Reasoning(BaseModel):
    effort: NamedEffort | None = "medium"
    summary: Literal["auto", "concise", "detailed"] | None = None


class _Tool(BaseModel):
    type: Literal[
        "function", "web_search", "web_search_preview", "code_interpreter", "file_search",
        "image_generation", "computer_use_preview", "local_shell", "shell", "mcp", "custom",
        "namespace", "tool_search",
    ]  # fmt: skip
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False
    tools: list[dict[str, Any]] | None = None
    defer_loading: bool | None = None
    format: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.type == "function" and not self.name:
            raise ValueError("a function must have a name")
        return self


class _PlainFormat(BaseModel):
    type: Literal["text", "json_object"]


class _SchemaFormat(BaseModel):
    type: Literal["json_schema"]
    name: str
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class _TextConfig(BaseModel):
    format: _PlainFormat | _SchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Responses(BaseModel):
    """A body of the API."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    reasoning: _Reasoning | None = None
    tools: list[_Tool] = []
    tool_choice: Literal["auto", "required", "none"] | dict[str, Any] = "auto"
    text: _TextConfig | None = None
    stream: bool | None = False
    include: list[str] | None = None
    background: bool | None = False
    previous_response_id: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    extra_key: str | None = None
    cache_salt: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_thinking(cls, body: Any) -> Any:
        """An effort of none says to the template that there is no thinking."""
        reasoning = body.get("reasoning") if isinstance(body, Mapping) else None
        if not isinstance(reasoning, Mapping):
            return body
        if (reasoning.get("effort") or reasoning.get("reasoning_effort")) != "none":
            return body
        given = body.get("chat_template_kwargs")
        kwargs = {"thinking": False, "enable_thinking": False}
        if isinstance(given, Mapping):
            kwargs |= given
        return {**body, "chat_template_kwargs": kwargs}


def chat_of(body: Responses, rules: ChatRules) -> dict[str, Any]:
    """The fields of the chat. Raises `InexactError`."""
    _check(body, rules)
    tools = [_chat_tool(tool) for tool in body.tools if _is_called(tool)]
    choice = _choice(body)
    form = body.text.format if body.text else None
    if form and form.type != "text" and tools and choice not in ("auto", "none"):
        raise invalid("text: an answer in JSON cannot be asked for with a call of a tool")
    return {
        "messages": _messages(body, rules),
        "tools": tools or None,
        "tool_choice": choice if tools else "none",
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "chat_template_kwargs": body.chat_template_kwargs,
    }


def _check(body: Responses, rules: ChatRules) -> None:
    if body.previous_response_id is not None or body.background:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            "previous_response_id, background: what the engine has stored is not known",
        )
    logprobs = body.include is not None and "message.output_text.logprobs" in body.include
    if body.stream and logprobs:
        raise invalid("include: the engine streams no log probabilities")
    if any(tool.type == "shell" for tool in body.tools):
        raise invalid("tools: the engine has no tool of type shell for this model")
    named = [tool for tool in body.tools if tool.type == "namespace" or tool.defer_loading]
    if named and rules.tool_call_parser in _NAMESPACES:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"tools: what --tool-call-parser {rules.tool_call_parser} makes of namespaces and of "
            "defer_loading is not covered",
        )
    kwargs = body.chat_template_kwargs or {}
    if "reasoning_effort" in kwargs and (rules.has_own_effort or not kwargs["reasoning_effort"]):
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            "chat_template_kwargs.reasoning_effort: it is not covered on this route if it is null "
            "or the server has an effort of its own",
        )


def _is_called(tool: _Tool) -> bool:
    return tool.type == "function" or (tool.type == "custom" and bool(tool.name))


def _chat_tool(tool: _Tool) -> dict[str, Any]:
    description, parameters = tool.description, tool.parameters
    if tool.type == "custom":
        description, parameters = _custom_description(tool), dict(_PAYLOAD)
    function = {
        "name": tool.name,
        "description": description,
        "parameters": parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": function}


def _custom_description(tool: _Tool) -> str | None:
    told = [tool.description] if tool.description else []
    form = tool.format or {}
    if form.get("type") == "grammar":
        syntax = form.get("syntax") or "lark"
        definition = form.get("definition") or ""
        told.append(f"The payload must conform to this {syntax} grammar:\n{definition}")
    return "\n\n".join(told) or None


def _choice(body: Responses) -> Any:
    choice = body.tool_choice
    if choice == "required" and all(tool.type not in _KINDS for tool in body.tools):
        raise invalid("tool_choice: the engine can require functions and custom tools only")
    if not isinstance(choice, dict):
        return choice
    function = choice.get("function") or {}
    if not choice.get("name") and not isinstance(function, dict):
        raise invalid(f"tool_choice: function must be an object, found {quoted(function)}")
    name = choice.get("name") or function.get("name")
    if choice.get("type") not in _KINDS or not name:
        return "auto"
    if all(tool.type not in _KINDS or tool.name != name for tool in body.tools):
        raise invalid(f"tool_choice: {quoted(name)} is not among the tools")
    return {"type": "function", "function": {"name": name}}


def _messages(body: Responses, rules: ChatRules) -> list[Any]:
    made: list[Any] = []
    if body.instructions:
        made.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        made.append({"role": "user", "content": body.input})
    else:
        made += [turn for item in body.input for turn in _turn(item, rules)]
    merged = _merged(made)
    if rules.inline_system:
        return merged
    system = [text for turn in merged if turn.get("role") == "system" for text in _texts(turn)]
    others = [turn for turn in merged if turn.get("role") != "system"]
    return [{"role": "system", "content": "\n\n".join(system)}, *others] if system else others


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            yield text


def _turn(item: Mapping[str, Any], rules: ChatRules) -> Iterator[dict[str, Any]]:
    """The message of a chat that an item becomes, if it becomes one."""
    if item.get("role") == "developer":
        item = {**item, "role": "system", "content": _labelled(item.get("content"))}
    match item.get("type"):
        case "function_call":
            if item.get("namespace") and rules.tool_call_parser in _NAMESPACES:
                raise InexactError(
                    Reason.UNSUPPORTED_FIELD,
                    f"input: what --tool-call-parser {rules.tool_call_parser} makes of a namespace "
                    "is not covered",
                )
            yield _call(item, _arguments(item.get("arguments")))
        case "custom_tool_call":
            yield _call(item, {"input": item.get("input") or ""})
        case "function_call_output" | "custom_tool_call_output":
            output = _joined(item.get("output", ""))
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
        case "reasoning":
            if thoughts := _thoughts(item):
                yield {"role": "assistant", "reasoning_content": "\n".join(thoughts)}
        case None | "message":
            content = item.get("content")
            if isinstance(content, list):
                item = {**item, "content": [_part(part) for part in content]}
            yield {
                name: value
                for name, value in item.items()
                if value is not None and name not in _OF_ITEM
            }
        case other:
            raise invalid(f"input: the engine takes no items of type {quoted(other)}")


def _labelled(content: Any) -> Any:
    """The content of a developer's message, which becomes one of the system."""
    if isinstance(content, str):
        return f"{_LABEL}\n{content}"
    if not isinstance(content, list):
        return content
    for place, part in enumerate(content):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            labelled = {**part, "text": f"{_LABEL}\n{part['text']}"}
            return [*content[:place], labelled, *content[place + 1 :]]
    return [{"type": "input_text", "text": _LABEL}, *content]


def _call(item: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    name = item.get("call_id") or (item.get("id") if item.get("content") is None else None)
    function = {"name": item.get("name"), "arguments": arguments}
    call = {"id": name, "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def _arguments(sent: object) -> dict[str, Any]:
    if isinstance(sent, dict):
        return sent
    if not isinstance(sent, str):
        return {}
    try:
        return arguments_of(sent)
    except InexactError as error:
        if error.reason is Reason.INVALID_REQUEST:
            return {}
        raise


def _joined(output: Any) -> Any:
    if not isinstance(output, list):
        return output
    texts = [part.get("text", "") for part in output if isinstance(part, dict)]
    if not all(isinstance(text, str) for text in texts):
        raise invalid("input: the text of an output must be a string")
    return "".join(texts)


def _thoughts(item: Mapping[str, Any]) -> list[str]:
    found = list(_thought_texts(item.get("summary"))) or list(_thought_texts(item.get("content")))
    return found or list(_restored(item.get("encrypted_content")))


def _thought_texts(parts: Any) -> Iterator[str]:
    if not isinstance(parts, list | str | dict | None):
        raise invalid(f"input: thoughts must be a list, found {quoted(parts)}")
    for part in parts or ():
        if isinstance(part, dict) and (text := part.get("text")):
            if not isinstance(text, str):
                raise invalid("input: the text of a thought must be a string")
            yield text


def _restored(state: object) -> Iterator[str]:
    """The thoughts that the engine gave to a client for itself."""
    if not isinstance(state, str) or not state.startswith(_STATE):
        return
    unpacked = zlib.decompressobj()
    try:
        packed = base64.urlsafe_b64decode(state.removeprefix(_STATE))
        text = unpacked.decompress(packed, _MOST_STATE)
        if unpacked.unconsumed_tail:
            raise InexactError(Reason.UNSUPPORTED_FIELD, "input: encrypted_content is too long")
        if unpacked.eof and text:
            yield text.decode()
    except (ValueError, zlib.error):
        return


def _part(part: Any) -> Any:
    """A part of a message's content, as a chat has it."""
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind not in ("input_image", "image_url"):
        return part
    picture = part.get("image_url")
    if kind == "image_url" and not isinstance(picture, dict | str):
        return part
    url = dict(picture) if isinstance(picture, dict) else {"url": picture}
    if not url.get("detail"):
        url["detail"] = part.get("detail") or "auto"
    for name in ("min_dynamic_patch", "max_dynamic_patch", "max_long_side_pixel"):
        if kind == "input_image" and name in part:
            url.setdefault(name, part[name])
    kept = part if kind == "image_url" else {"type": "image_url"}
    return {**kept, "image_url": url}


def _merged(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a chat, in which runs of the assistant's are one."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        last = merged[-1] if merged else {}
        joins = message.get("role") == last.get("role") == "assistant"
        if joins and (last.get("phase") == message.get("phase") or last.keys() == _ONLY_THOUGHTS):
            merged[-1] = _with(last, message)
        else:
            merged.append(message)
    return merged


_ONLY_THOUGHTS: Final = {"role", "reasoning_content"}


def _with(message: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(message)
    if other.get("phase") is not None:
        joined["phase"] = other["phase"]
    before, after = message.get("content"), other.get("content")
    if after is not None and after != "":
        if before is None or before == "":
            joined["content"] = after
        elif isinstance(before, str) and isinstance(after, str):
            joined["content"] = f"{before}\n\n{after}"
        else:
            joined["content"] = _as_parts(before) + _as_parts(after)
    if calls := other.get("tool_calls"):
        if not isinstance(calls, list) or not isinstance(message.get("tool_calls"), list | None):
            raise invalid(f"input: tool_calls must be a list, found {quoted(calls)}")
        joined["tool_calls"] = [*(message.get("tool_calls") or ()), *calls]
    if thoughts := other.get("reasoning_content"):
        earlier = message.get("reasoning_content")
        joined["reasoning_content"] = f"{earlier}\n{thoughts}" if earlier else thoughts
    return joined


def _as_parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return list(content)
    return [{"type": "text", "text": content}] if isinstance(content, str) else []
