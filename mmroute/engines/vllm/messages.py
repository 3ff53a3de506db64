"""Parses OpenAI chat messages as vLLM does before it renders a template.

Source: vLLM ``renderers/chat_utils/chat_message.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mmroute.chat.conversation import ParsedChat
from mmroute.chat.parts import MediaPart, Part, TextPart, ToolReference
from mmroute.chat.renderer import Chat
from mmroute.engines.vllm.message_schema import (
    OBJECT,
    OTHER_MEDIA,
    TEXT_FIELD,
    check_chat,
    check_parts,
    is_link,
    uncovered,
)
from mmroute.engines.vllm.tools import ordered_tools, with_parsed_arguments
from mmroute.errors import InexactError, Reason, invalid, json_type, quoted
from mmroute.requests.items import Modality, checked_uuid
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.chat.cache import ChatCache, ChatPrefix

_MODALITIES: Final[Mapping[str, Modality]] = {
    "image": Modality.IMAGE,
    "image_url": Modality.IMAGE,
    "video": Modality.VIDEO,
    "video_url": Modality.VIDEO,
    "audio": Modality.AUDIO,
    "audio_url": Modality.AUDIO,
    "input_audio": Modality.AUDIO,
}
"""Types of parts that stand for an item."""
# Keys the content part types define; every other key of a part reaches the template.
_PART_KEYS: Final = frozenset({
    "audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil",
    "image_url", "input_audio", "name", "prompt_cache_breakpoint", "refusal", "text",
    "thinking", "type", "uuid", "video_embeds", "video_url",
})  # fmt: skip
# Where other APIs put the content of a part of type "image", "video" or "audio".
_CONTENT_KEYS: Final = frozenset({"source", "url", *_MODALITIES})
_PLAIN: Final = frozenset(Modality)
# Where a part has its link, by its type: as the type says, or as its keys do beside a uuid.
_URL_KEY: Final = {kind: f"{modality}_url" for kind, modality in _MODALITIES.items()}
_URL_TYPES: Final = frozenset(_URL_KEY.values())
_A: Final = {"image_url": "an image_url", "video_url": "a video_url", "audio_url": "an audio_url"}
_TELLING_KEYS: Final = (
    "image_url", "audio_url", "input_audio", "video_url", *OTHER_MEDIA, "tool_reference",
)  # fmt: skip
# How templates know an item. Not the enum itself: a template may print the part.
_TYPE: Final[Mapping[Modality, str]] = {modality: modality.value for modality in Modality}
_NO_EXTRA: Final[Mapping[str, Any]] = {}  # a proxy would cost every part an iteration
# Roles that add nothing to their messages if those have nothing but a content.
_WITHOUT_MORE: Final = frozenset({"system", "user", "assistant"})
_Media: TypeAlias = dict[Modality, list[MediaPart]]
BILLING_HEADER: Final = "x-anthropic-billing-header"
"""The beginning of a line that one client puts into each request, and that no cache should see."""


def parse_chat(request: Request, prefix: ChatPrefix | None = None) -> ParsedChat:
    """Check the messages of a request, and parse them as most of vLLM's renderers do.

    Args:
        request: the client's request.
        prefix: the leading messages that the cache knows, which are not checked again.

    Raises:
        InexactError: `invalid_request`, `unsupported_field`, `unsupported_modality`.
    """
    if prefix is None:
        first, checked, media = 0, check_chat(request), {}
    else:
        first, media = prefix.count, prefix.media()
        checked = check_chat(request, first)
    contents = [_parts(message, media, index) for index, message in enumerate(checked, first)]
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
            tools = message.get("tools")
            if tools is not None and ordered_tools(tools) is None:
                raise uncovered(f"messages[{index}].tools is no list of tools, and not covered")
        return chat


def to_conversation(
    chat: ParsedChat, *, content_format: str, placeholders: Mapping[Modality, str]
) -> list[dict[str, Any]]:
    """The messages of a chat as the template gets them, with those that the cache knows.

    Args:
        chat: the request's chat.
        content_format: ``openai`` keeps the parts of a message as dicts in their order;
            ``string`` joins the texts and puts missing placeholders in front.
        placeholders: the text that is put in front for one item, by modality, with ``{n}`` for
            the item's number. A modality without a text gets no placeholder.

    Raises:
        InexactError: `invalid_request`, `placeholder_count_mismatch`.
    """
    conversation = [] if chat.prefix is None else chat.prefix.conversation()
    for message, parts in zip(chat.messages, chat.contents, strict=True):
        content: str | list[dict[str, Any]]
        if content_format == "openai":
            content = [_as_dict(part) for part in parts]
        else:
            content = _as_text(parts, placeholders)
        conversation.append(_conversation_message(message, content))
    return conversation


def _parts(message: Mapping[str, Any], media: _Media, index: int) -> Sequence[Part]:
    content = message.get("content")
    if content is None:
        return ()
    if isinstance(content, str):
        if message["role"] != "system":
            return (TextPart(content, _NO_EXTRA),)
        content = [{"type": "text", "text": content}]
    else:
        check_parts(message, content, f"messages[{index}]")
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
    if kind in _MODALITIES:
        extra = _extra_of_item(part, kind)
        url, uuid = _url(part, kind), _uuid(part)
        return _placed(media, _MODALITIES[kind], part, url=url, uuid=uuid, extra=extra)
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
    kind = part.get("type")
    known = isinstance(kind, str) and kind in _MODALITIES
    if (kind is None or part.get("uuid") is not None) and not known:
        # As the engine does: without a type, or with a uuid, the keys tell what a part is.
        kind = next((key for key in _TELLING_KEYS if key in part), None)
    return kind if isinstance(kind, str) else ""


def _parse_text(part: Mapping[str, Any], kind: str) -> TextPart | None:
    text = part.get(TEXT_FIELD[kind])
    if text is None and kind in ("text", "refusal"):
        return None
    if not isinstance(text, str):
        raise uncovered(f"the text of a part of type {kind!r} is no string but {json_type(text)}")
    return TextPart(text, _extra_keys(part))


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
    if kind == "input_audio":
        return _input_audio(part.get("input_audio"))
    link = part.get(_URL_KEY[kind])
    url = link.get("url") if isinstance(link, OBJECT) else link
    return url if isinstance(url, str) and url else None


def _is_held(part: Mapping[str, Any], kind: str) -> bool:
    """Whether a part names an item that the engine holds, and has no link to it."""
    if part.get("uuid") is None or kind not in part:
        return False
    link, key = part[kind], "data" if kind == "input_audio" else "url"
    return (link.get(key) if isinstance(link, OBJECT) else link) in (None, "")


def _input_audio(audio: object) -> str | None:
    """The data URL that the engine makes of base64 and a format, which it does not look at."""
    data = audio.get("data") if isinstance(audio, OBJECT) else None
    return f"data:audio/wav;base64,{data}" if isinstance(data, str) and data else None


def _uuid(part: Mapping[str, Any]) -> str | None:
    """The client's name for an item; the engine takes the text of whatever is there."""
    uuid = part.get("uuid")
    return None if uuid is None else checked_uuid(str(uuid))


def _extra_of_item(part: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The keys of an item's part that reach the template, once its own are in order."""
    if kind == "input_audio":
        if not _input_audio(part.get(kind)) and not _is_held(part, kind):
            raise invalid(
                'an input_audio part must hold {"data": "BASE64", "format": "wav"}, found '
                f"{quoted(part.get(kind))}"
            )
    elif kind in _URL_TYPES:
        if not is_link(_link(part, kind)) and not _is_held(part, kind):
            raise invalid(
                f'{_A[kind]} part must hold {{"url": "..."}} with a data:, http(s): or file: URL, '
                f"found {quoted(part.get(kind))}"
            )
    elif not _CONTENT_KEYS.isdisjoint(part):
        raise invalid(
            f'a part of type "{kind}" stands for an item of `{kind}s`; one that carries its own is '
            f'{{"type": "{kind}_url", "{kind}_url": {{"url": "data:..."}}}}'
        )
    if "prompt_cache_breakpoint" in part:
        raise invalid("prompt_cache_breakpoint is not covered")
    return _extra_keys(part) if kind not in _PLAIN else _NO_EXTRA


def _link(part: Mapping[str, Any], kind: str) -> object:
    """The value of ``image_url`` and the like; a bare URL will do where the keys tell the kind."""
    link = part.get(kind)
    told_by_keys = part.get("type") is None or part.get("uuid") is not None
    return {"url": link} if told_by_keys and isinstance(link, str) else link


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
    if part.name is not None and not isinstance(part.name, str):
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
