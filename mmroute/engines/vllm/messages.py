"""Parses OpenAI chat messages as vLLM does before it renders a template.

Source: vLLM ``renderers/chat_utils/chat_message.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mmroute.chat.cache import ChatCache, ChatPrefix
from mmroute.chat.conversation import MediaPart, Part, TextPart, ToolReference
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.engines.vllm.message_schema import (
    OBJECT,
    LateParts,
    check_chat,
    is_plain_part,
    uncovered,
)
from mmroute.engines.vllm.tools import with_parsed_arguments
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.checks import checked_uuid
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

TEXT_FIELD: Final[Mapping[str, str]] = {
    "text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal",
    "thinking": "thinking",
}  # fmt: skip
"""Part types that are text -> the key that holds it."""
OTHER_MEDIA: Final = (
    "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "file",
    "input_image",
)  # fmt: skip
"""Part types that are not covered."""
_LINKED: Final[Mapping[str, Modality]] = {
    "image_url": Modality.IMAGE, "video_url": Modality.VIDEO, "audio_url": Modality.AUDIO,
    "input_audio": Modality.AUDIO,
}  # fmt: skip
"""Types of parts that carry their item, which are also the keys of it."""
_PLAIN: Final[Mapping[str, Modality]] = {modality.value: modality for modality in Modality}
"""Types of parts that stand for an item of the request's lists."""
# Keys the content part types define; every other key of a part reaches the template.
_PART_KEYS: Final = frozenset({
    "audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil",
    "image_url", "input_audio", "name", "prompt_cache_breakpoint", "refusal", "text",
    "thinking", "type", "uuid", "video_embeds", "video_url",
})  # fmt: skip
# Where other APIs put the content of a part of type "image", "video" or "audio".
_CONTENT_KEYS: Final = frozenset({"prompt_cache_breakpoint", "source", "url", *_PLAIN, *_LINKED})
# In the order in which vLLM looks for them where the keys of a part say what it is.
_TELLING_KEYS: Final = (
    "image_url", "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds",
    "audio_url", "input_audio", "video_url", "tool_reference",
)  # fmt: skip
_SCHEMES: Final = ("data:", "http://", "https://", "file:")
_LONGEST_SCHEME: Final = max(map(len, _SCHEMES))
# How templates know an item. Not the enum itself: a template may print the part.
_TYPE: Final[Mapping[Modality, str]] = {modality: modality.value for modality in Modality}
_NO_EXTRA: Final[Mapping[str, Any]] = {}  # a proxy would cost every part an iteration
# Roles that add nothing to their messages if those have nothing but a content.
_WITHOUT_MORE: Final = frozenset({"system", "user", "assistant"})
_Media: TypeAlias = dict[Modality, list[MediaPart]]
BILLING_HEADER: Final = "x-anthropic-billing-header"
"""The beginning of a line that one client puts into each request, and that no cache should see."""


def parse_chat(request: Request, prefix: ChatPrefix | None = None) -> ParsedChat:
    """Check the messages of a request, and parse them as most of vLLM's renderers do."""
    if prefix is None:
        first, checked, media = 0, check_chat(request), {}
    else:
        first, media = prefix.count, prefix.media()
        checked = check_chat(request, first)
    contents = [_parts(message, media) for message in checked]
    return ParsedChat(checked, contents, media, prefix)


class VllmChat(Chat):
    """A renderer that checks messages as vLLM's API does, and uses no cache.

    What it may get that only templates were compared with, it refuses.
    """

    __slots__ = ()

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        chat = parse_chat(request)
        for index, message in enumerate(chat.messages):
            if not isinstance(message.get("reasoning"), str | None):
                raise uncovered(f"messages[{index}].reasoning is no text, and not covered here")
            if message.get("tools") is not None:
                from mmroute.engines.judging import judged
                from mmroute.engines.vllm.message_types import MESSAGE_TOOLS

                try:
                    judged(MESSAGE_TOOLS.validate_python, message["tools"], "tools")
                except InexactError as error:
                    raise uncovered(f"messages[{index}].{error}") from None
        return chat


def to_conversation(
    chat: ParsedChat, *, content_format: str, placeholders: Mapping[Modality, str]
) -> list[dict[str, Any]]:
    """The messages of a chat as the template gets them, with those that the cache knows."""
    conversation = [] if chat.prefix is None else chat.prefix.conversation()
    for message, parts in zip(chat.messages, chat.contents, strict=True):
        content: str | list[dict[str, Any]]
        if content_format == "openai":
            content = [_as_dict(part) for part in parts]
        else:
            content = _as_text(parts, placeholders)
        conversation.append(_conversation_message(message, content))
    return conversation


def read_parts(message: Mapping[str, Any]) -> list[Any]:
    """The parts of a checked message, which are checked now if the schema left them."""
    parts: list[Any] = message["content"]
    if isinstance(parts, LateParts) and parts.error is not None:
        raise parts.error
    return parts


def _parts(message: Mapping[str, Any], media: _Media) -> Sequence[Part]:
    content = message.get("content")
    if content is None:
        return ()
    if isinstance(content, str):
        if message["role"] != "system":
            return (TextPart(content, _NO_EXTRA),)
        content = [{"type": "text", "text": content}]
    else:
        content = read_parts(message)
    if message["role"] == "system":
        content = _without_billing_header(content)
    return [part for one in content if (part := _parse_part(one, media)) is not None]


def _parse_part(part: object, media: _Media) -> Part | None:
    if isinstance(part, str):
        return TextPart(part, _NO_EXTRA)
    if type(part) is dict:  # the two commonest parts, in their plainest form
        kind = part.get("type")
        if kind == "text" and len(part) == 2 and type(part.get("text")) is str:  # noqa: PLR2004 - type and text
            return TextPart(part["text"], _NO_EXTRA)
        if kind == "image" and len(part) == 1:
            return _placed(media, Modality.IMAGE, part)
    if not isinstance(part, OBJECT):
        raise invalid(f"a content part must be an object, found {json_type(part)}")
    kind = _kind(part)
    if kind in TEXT_FIELD:
        return _parse_text(part, kind)
    if kind in _PLAIN or kind in _LINKED:
        return _parse_item(part, kind, media)
    if kind == "tool_reference":
        return ToolReference(part.get("name"))
    if kind in OTHER_MEDIA:
        raise InexactError(
            Reason.UNSUPPORTED_MODALITY,
            f"a content part of type {kind!r}: only text, images, videos and audio are covered",
        )
    raise invalid(
        f"unknown content part type {quoted(part.get('type'))}; known are text, image, image_url, "
        "video, video_url, audio, audio_url, input_audio, refusal, thinking"
    )


def _kind(part: Mapping[str, Any]) -> str:
    kind = part.get("type", "")
    if not isinstance(kind, str | None):
        return ""
    if kind not in _PLAIN and _has_key_of_kind(part):
        kind = next((key for key in _TELLING_KEYS if key in part), None)
    return kind or ""


def _has_key_of_kind(part: Mapping[str, Any]) -> bool:
    """Whether vLLM looks at the keys of a part to see what it is."""
    return part.get("type") is None or part.get("uuid") is not None


def _parse_text(part: Mapping[str, Any], kind: str) -> TextPart | None:
    text = part.get(TEXT_FIELD[kind])
    if text is None and kind in ("text", "refusal"):
        return None
    if not isinstance(text, str):
        raise uncovered(f"the text of a part of type {kind!r} is no string but {json_type(text)}")
    return TextPart(text, _extra_keys(part))


def _parse_item(part: Mapping[str, Any], kind: str, media: _Media) -> MediaPart:
    uuid = part.get("uuid")
    name = None if uuid is None else checked_uuid(str(uuid))  # the engine takes any value's text
    if kind in _LINKED:
        url, extra = _url(part, kind), _extra_keys(part)
        return _placed(media, _LINKED[kind], part, url=url, uuid=name, extra=extra)
    if not _CONTENT_KEYS.isdisjoint(part):
        raise invalid(
            f'a part of type "{kind}" stands for an item of `{kind}s`; one that carries its own is '
            f'{{"type": "{kind}_url", "{kind}_url": {{"url": "data:..."}}}}'
        )
    return _placed(media, _PLAIN[kind], part, uuid=name)


def _placed(
    media: _Media,
    modality: Modality,
    part: Mapping[str, Any],
    *,
    url: str | None = None,
    uuid: str | None = None,
    extra: Mapping[str, Any] = _NO_EXTRA,
) -> MediaPart:
    """The part of an item, numbered among those of its modality."""
    listed = media.setdefault(modality, [])
    placed = MediaPart(modality, len(listed) + 1, url, uuid, extra, part)
    listed.append(placed)
    return placed


def _url(part: Mapping[str, Any], kind: str) -> str | None:
    """The link of a part; None for one that only names an item that the engine holds."""
    link = part.get(kind)
    if kind == "input_audio":
        data = link.get("data") if isinstance(link, OBJECT) else bool(link)
        url = f"data:audio/wav;base64,{data}" if isinstance(data, str) and data else data
    else:
        if not _has_key_of_kind(part) and not is_plain_part(part):
            from mmroute.engines.judging import judged
            from mmroute.engines.vllm.message_types import LINKED

            judged(LINKED[kind].validate_python, part, kind)
        url = link.get("url") if isinstance(link, OBJECT) else link
    if not url and part.get("uuid") is not None:
        return None
    if isinstance(url, str) and url[:_LONGEST_SCHEME].lower().startswith(_SCHEMES):
        return url
    wanted = "base64 data" if kind == "input_audio" else "a data:, http(s): or file: URL"
    raise invalid(f"a part of type {kind} must have {wanted}, found {quoted(link)}")


def _extra_keys(part: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in part.items() if k not in _PART_KEYS}


def _without_billing_header(parts: Sequence[Any]) -> Iterator[Any]:
    """Drop the line by which one client marks every request, as vLLM does in system texts."""
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(part, Mapping) and part.get("type") != "text":
            text = None
        if not (isinstance(text, str) and text.startswith(BILLING_HEADER)):
            yield part
        elif rest := text.partition("\n")[2]:
            yield {**part, "text": rest} if isinstance(part, Mapping) else rest


def _as_dict(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text, **part.extra}
    if isinstance(part, MediaPart):
        return {"type": _TYPE[part.modality], **part.extra}
    return {"type": "tool_reference", "name": part.name}


def _as_text(parts: Sequence[Part], placeholders: Mapping[Modality, str]) -> str:
    texts = [text for part in parts if not isinstance(part, MediaPart) and (text := _text_of(part))]
    text = "\n".join(texts)
    items = [part for part in parts if isinstance(part, MediaPart)]
    wanted = Counter(
        placeholders[modality].replace("{n}", str(part.number))
        for modality in dict.fromkeys(part.modality for part in items)
        for part in items
        if part.modality is modality and modality in placeholders
    )
    missing: list[str] = []
    for placeholder, count in wanted.items():
        left = count - text.count(placeholder)
        if left < 0:
            raise InexactError(
                Reason.PLACEHOLDER_COUNT_MISMATCH,
                f"the text has {placeholder!r} {count - left} times, but only {count} items",
            )
        missing += [placeholder] * left
    return "\n".join([*missing, text] if text else missing)


def _text_of(part: TextPart | ToolReference) -> str:
    if isinstance(part, TextPart):
        return part.text
    if part.name and not isinstance(part.name, str):
        raise invalid(
            f"the name of a tool_reference part must be a string, found {quoted(part.name)}"
        )
    return part.name or ""


def _conversation_message(
    message: Mapping[str, Any], content: str | list[dict[str, Any]]
) -> dict[str, Any]:
    role = message["role"]
    result: dict[str, Any] = {"role": role, "content": content}
    if role in _WITHOUT_MORE and message.keys() == result.keys():
        return result
    return result | _more(message, role, content)


def _more(
    message: Mapping[str, Any], role: str, content: str | list[dict[str, Any]]
) -> dict[str, Any]:
    """The fields that a template gets of a message beside its role and content."""
    result: dict[str, Any] = {}
    if role == "assistant":
        if message.get("tool_calls"):
            result["tool_calls"] = [with_parsed_arguments(c) for c in message["tool_calls"]]
        if message.get("reasoning") is not None:
            result["reasoning"] = result["reasoning_content"] = message["reasoning"]
    elif role == "tool":
        if "tool_call_id" in message:
            result["tool_call_id"] = message["tool_call_id"]
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            result["content"] = "\n".join(part["text"] for part in content)
    for name in ("name", "task"):
        if isinstance(message.get(name), str):
            result[name] = message[name]
    if role == "developer":
        result["tools"] = message.get("tools")
    return result
