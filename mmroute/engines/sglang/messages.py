"""Parses OpenAI chat messages as SGLang does before it renders a template.

Source: SGLang ``srt/entrypoints/openai/serving_chat.py`` (`_apply_jinja_template`),
``srt/parser/jinja_template_utils.py`` (`process_content_for_template_format`); SGLang
``srt/entrypoints/openai/protocol.py`` (`Tool`, `Function`) and ``srt/function_call/utils.py``
(`get_json_schema_constraint`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from mmroute.chat.conversation import MediaPart, Part, TextPart
from mmroute.chat.renderer import ParsedChat
from mmroute.engines.judging import judged
from mmroute.engines.sglang.json_schema import check_schema
from mmroute.engines.sglang.message_schema import (
    CHAT,
    EFFORT,
    TOOL_CHOICE,
    TOOLS,
    UNCHECKED,
    Tool,
    ToolChoice,
    arguments_of,
    check_values,
)
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.images.data_url import is_data_url
from mmroute.requests.checks import checked_uuid
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

_LEFT_OUT: Final = frozenset({"strict", "defer_loading"})  # where they are null


def split_last(
    messages: Sequence[dict[str, Any]], request: Request
) -> tuple[list[dict[str, Any]], str]:
    """The messages to render, and the text of the last one if it is continued.

    Without `continue_final_message` a last message of the assistant becomes one of the user.
    """
    last = messages[-1]
    if last["role"] != "assistant" or not isinstance(last["content"], str):
        return list(messages), ""
    if request.continue_final_message:
        if len(messages) == 1:
            raise invalid("messages hold nothing before the one that is continued")
        return list(messages[:-1]), last["content"]
    return [*messages[:-1], {"role": "user", "content": last["content"]}], ""


def template_tools(request: Request) -> list[dict[str, Any]] | None:
    """The tool definitions for the template: known fields, in the client's order."""
    tools = request.tools
    choice = request.api_fields.get("tool_choice")
    if choice is not None:
        choice = judged(TOOL_CHOICE.validate_python, choice, "tool_choice")
    known = () if tools is None else judged(TOOLS.validate_python, tools, "tools")
    if UNCHECKED not in request.api_fields:
        for tool in known:
            if tool.function.parameters is not None:
                check_schema(tool.function.parameters)
    shown = [_shown(tool, sent) for tool, sent in zip(known, cast("Any", tools or ()), strict=True)]
    if isinstance(choice, ToolChoice):
        named = choice.function.name
        shown = [tool for tool in shown if tool["function"]["name"] == named]
    if not shown and choice not in (None, "auto", "none"):
        raise invalid("tool_choice asks for a tool that is not among the tools")
    if choice == "required":  # the engine makes one schema of all
        known_as: dict[str, object] = {}
        for name, schema in _definitions(shown):
            if known_as.setdefault(name, schema) != schema:
                raise invalid(f"the tools have several definitions of {quoted(name)}")
    return shown if shown and choice != "none" else None


def _shown(tool: Tool, sent: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(vars(tool.function))
    if fields["defer_loading"] is None:
        fields["defer_loading"] = tool.defer_loading
    shown = {
        name: fields[name]
        for name in (*sent["function"], *fields)
        if name in fields and (fields[name] is not None or name not in _LEFT_OUT)
    }
    return {"type": tool.type, "function": shown, "defer_loading": tool.defer_loading}


def _definitions(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, object]]:
    for tool in tools:
        schema = tool["function"]["parameters"]
        yield from (schema.get("$defs") or {}).items() if isinstance(schema, dict) else ()


_PLAIN: Final = frozenset({"role", "content"})
_OTHER_MEDIA: Final = frozenset({"video", "video_url", "audio", "audio_url", "input_audio"})


def parse_messages(request: Request, *, joined: bool = False, calls: bool = True) -> ParsedChat:
    """Check the messages of a request, and parse them.

    `joined` is for contents that are texts; `calls` is whether the calls of tools are read.
    """
    if request.documents is not None:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            "documents: the engine's token IDs depend on it, and it is not covered",
        )
    judged(EFFORT.validate_python, request.reasoning_effort, "reasoning_effort")
    messages_sent: object = request.messages
    if isinstance(messages_sent, str | bytes | Mapping) or not isinstance(messages_sent, Sequence):
        raise invalid(f"messages must be a list, found {json_type(messages_sent)}")
    prepared = [_with_image_urls(message) for message in messages_sent]
    checked = judged(CHAT.validate_python, prepared, "messages")
    messages: list[dict[str, Any]] = []
    contents: list[Sequence[Part]] = []
    media: list[MediaPart] = []
    for model in checked:
        message = model.model_dump(exclude_none=True)
        if not calls:
            message.pop("tool_calls", None)
            _check_own_parts(message)
        parts = _parts(message, media)
        messages.append(_normalized(message, joined=joined))
        contents.append(parts)
    if media and joined:
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY,
            "the chat template takes contents as texts, and the engine drops images from them",
        )
    return ParsedChat(messages, contents, {Modality.IMAGE: media} if media else {})


def _check_own_parts(message: Mapping[str, Any]) -> None:
    """Refuse parts that templates of the engine's own have no place for."""
    for part in content if isinstance(content := message.get("content"), list) else ():
        if part["type"] not in ("text", "image_url"):
            raise invalid(f"the engine's template for this model has no parts of {part['type']}")


def _with_image_urls(message: object) -> object:
    """A message whose parts of type "image" have the form that the API knows."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or (isinstance(content, str) and message.keys() <= _PLAIN):
        return message
    check_values("messages", message)
    if not isinstance(content, list):
        return message
    return {**message, "content": [_with_image_url(part) for part in content]}


def _with_image_url(part: object) -> object:
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if not isinstance(kind, str):
        raise invalid(f"the type of a content part must be a string, found {quoted(kind)}")
    if kind in _OTHER_MEDIA:
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY, f"a part of type {kind!r}: only images are covered"
        )
    part = {key: value for key, value in part.items() if key != "bare"}  # which is ours alone
    if kind == "image" and part.keys() <= {"type", "uuid"}:
        return {**part, "type": "image_url", "image_url": {"url": ""}, "bare": True}
    return part


def _parts(message: Mapping[str, Any], media: list[MediaPart]) -> Sequence[Part]:
    content = message.get("content")
    if not isinstance(content, list):
        return () if content is None else (TextPart(content, {}),)
    parts: list[Part] = []
    for part in content:
        if part["type"] == "text":
            parts.append(TextPart(part["text"], {}))
        elif part["type"] == "image_url":
            if message["role"] in ("tool", "function"):  # their order depends on the template
                raise InexactError(
                    Reason.UNSUPPORTED_MODALITY, "an image in the answer of a tool is not covered"
                )
            url = None if part["bare"] else part["image_url"]["url"]
            if url is not None and not url.startswith("data:") and is_data_url(url):
                raise invalid("the engine reads data URLs that begin in small letters")
            uuid = checked_uuid(part.get("uuid"))
            media.append(MediaPart(Modality.IMAGE, len(media) + 1, url, uuid, {}, part))
            parts.append(media[-1])
    return parts


def _normalized(message: dict[str, Any], *, joined: bool) -> dict[str, Any]:
    """A message as the template gets it, without fields that are None; those inside stay."""
    content = message.pop("content", "")
    if isinstance(content, list):
        parts = [
            {"type": "image"} if part["type"] == "image_url" else part
            for part in content
            if part["type"] in ("text", "image_url", "tool_reference")
        ]
        only_text = all(part["type"] == "text" for part in content)
        if joined or (message["role"] == "tool" and only_text):
            content = " ".join(part["text"] for part in parts if "text" in part)
        if not joined:
            message["content"] = content if isinstance(content, str) else parts
    if "content" not in message:  # the engine moves a list to the end alone
        message = {"role": message.pop("role"), "content": content, **message}
    if "tool_calls" in message:
        if message["role"] != "assistant":
            raise InexactError(
                Reason.UNSUPPORTED_FIELD, "tool_calls of a message that is not the assistant's"
            )
        message["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    return message


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = arguments_of(arguments)
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": call["type"],
        "function": {"name": function.get("name"), "arguments": arguments},
    }
