"""What a request costs, known from what it is: it decides where the request runs.

A body is looked at twice. Before it is parsed its structure and its text are counted, because
objects take many times the memory of their bytes. After that the parsed request says what there is
to do, in characters of text: they are what takes time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from mmroute.images.data_url import DecodedUrl
from mmroute.server.bodies import Body
from mmroute.server.derender_protocol import (
    DerenderChatRequest,
    DerenderCompletionRequest,
    GenerateTokensResponse,
)
from mmroute.server.errors import ApiError
from mmroute.server.messages_protocol import AnthropicMessagesRequest
from mmroute.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from mmroute.server.responses_protocol import ResponsesRequest
from mmroute.server.settings import ServerSettings

__all__ = ["Cost", "check_body", "cost_of"]

# A picture is only read over: its bytes cost a 64th of text, and its header as much as some words.
_PICTURES_PER_CHARACTER: Final = 64
_CHARACTERS_PER_PICTURE: Final = 512
_CHARACTERS_PER_PROMPT: Final = 256
_SLICE: Final = 1 << 20
_LINKS: Final = ("http:", "https")
_LINKED: Final = frozenset({"image_url", "video_url", "audio_url"})
_NONE: Final[frozenset[str]] = frozenset()
_SOURCE: Final = b'"data":'
_MOST_SOURCES: Final = 1 << 13
_LONG_STRUCTURE: Final = 1 << 14
_ROLE_AND_CONTENT: Final = 2


class Cost(NamedTuple):
    """What a request costs.

    Attributes:
        text: characters that are encoded or rendered, and token IDs.
        pictures: bytes of data URLs.
        items: pictures and prompts, in characters of text.
        links: how many links it has.
    """

    text: int = 0
    pictures: int = 0
    items: int = 0
    links: int = 0

    @property
    def characters(self) -> int:
        """All of it as so many characters of text."""
        return self.text + self.items + self.pictures // _PICTURES_PER_CHARACTER


def check_body(body: Body, settings: ServerSettings) -> bool:
    """Refuse too much text or structure before it becomes objects.

    Returns:
        Whether parsing takes so long that other requests should not wait for it.

    Raises:
        ApiError: 413.
    """
    few = min(_LONG_STRUCTURE, settings.max_structure, settings.max_text_bytes)
    if body.text_size <= few:  # and so is its structure
        return len(body.raw) > _SLICE
    rest, size = body.rest, body.text_size
    if size > settings.max_text_bytes:
        rest = [piece for part in rest for piece in _without_sources(part)]
        size = sum(map(len, rest))
    _check_text(size, settings)
    structure = _structure(rest, settings.max_structure)
    if structure > settings.max_structure:
        raise _too_large("structure", f"{settings.max_structure} commas, colons and brackets")
    return len(body.raw) > _SLICE or structure > _LONG_STRUCTURE


def cost_of(request: BaseModel, settings: ServerSettings) -> Cost:
    """What a request costs.

    Raises:
        ApiError: 413: it has too much text, whatever it looked like.
    """
    match request:
        case ChatCompletionRequest() | TokenizeChatRequest():
            cost = _of_chat(request)
        case AnthropicMessagesRequest():
            cost = _of_messages(request)
        case ResponsesRequest():
            cost = _of_responses(request)
        case CompletionRequest():
            cost = _of_prompts(request.prompt)
        case TokenizeCompletionRequest():
            cost = Cost(text=len(request.prompt))
        case DetokenizeRequest():
            cost = Cost(text=len(request.tokens))
        case DerenderChatRequest():
            cost = _of_answers([request.generate_response])
        case DerenderCompletionRequest():
            cost = _of_answers(request.generate_responses)
        case _:
            cost = Cost()
    _check_text(cost.text, settings)
    return cost


def _of_chat(request: ChatCompletionRequest | TokenizeChatRequest) -> Cost:
    text = pictures = items = links = 0
    if request.tools or request.chat_template_kwargs:
        text += _characters((request.tools, request.chat_template_kwargs), _LINKED)
    for message in request.messages:
        content = message.get("content")
        if isinstance(content, str):
            text += len(content)
        if len(message) > _ROLE_AND_CONTENT:
            rest = [value for name, value in message.items() if name != "content"]
            text += _characters(rest, _LINKED)
        for part in content if isinstance(content, list) else ():
            linked = _LINKED.intersection(part) if isinstance(part, dict) else _NONE
            if not linked or len(part) > len(linked) + 1:
                text += _characters((part,), _LINKED)
            for url in [_url(part[name]) for name in linked]:
                if url[:5].lower() != "data:":
                    links += bool(url)
                elif url.isascii():
                    pictures += _data_length(url)
                    items += _CHARACTERS_PER_PICTURE
                else:
                    text += len(url)
    return Cost(text, pictures, items, links)


def _url(link: object) -> str:
    """Of a picture, video or sound, in any of the forms that are read."""
    url = link.get("url") if isinstance(link, dict) else link
    return url if isinstance(url, str) else ""


def _data_length(url: str) -> int:
    """Of a data URL, in characters of base64."""
    return len(url.content) * 4 // 3 if isinstance(url, DecodedUrl) else len(url)


def _of_messages(request: AnthropicMessagesRequest) -> Cost:
    urls = list[str]()
    for message in request.messages:
        for block in message.content if isinstance(message.content, list) else ():
            if block.type == "image":
                urls.append(_source(block.source))
            if block.type == "tool_result" and message.role == "user":
                urls += [_source(item.get("source")) for item in _typed(block.content, "image")]
    return _with_pictures(request, urls)


def _of_responses(request: ResponsesRequest) -> Cost:
    urls = list[str]()
    for item in request.input if isinstance(request.input, list) else ():
        parts = _typed(item.get("content", item.get("output")), "input_image")
        urls += [_url(part.get("image_url")) for part in parts]
    return _with_pictures(request, urls)


def _typed(parts: object, kind: str) -> Iterator[dict[str, Any]]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") == kind:
            yield part


def _source(source: object) -> str:
    """The URL of a picture, or a data URL of it, whose head costs nothing."""
    if not isinstance(source, dict):
        return ""
    if source.get("type") == "url":
        return _url(source)
    data = source.get("data")
    return data if isinstance(data, str) else ""


def _with_pictures(request: BaseModel, urls: Iterable[str]) -> Cost:
    """Of all texts within, some of which are pictures."""
    given = [url for url in urls if url and url.isascii()]
    links = sum(url[:5].lower() in _LINKS for url in given)
    pictures = sum(map(len, given))
    text = _characters((request,)) - pictures
    return Cost(text, pictures, _CHARACTERS_PER_PICTURE * len(given), links)


def _of_prompts(prompt: str | list[Any] | None) -> Cost:
    if prompt is None or isinstance(prompt, str):
        return Cost(text=len(prompt or ""))
    several = not prompt or not isinstance(prompt[0], int)
    text = sum(map(len, prompt)) if several else len(prompt)
    return Cost(text=text, items=_CHARACTERS_PER_PROMPT * len(prompt) if several else 0)


def _of_answers(responses: Iterable[GenerateTokensResponse]) -> Cost:
    choices = [choice for response in responses for choice in response.choices]
    return Cost(text=sum(len(choice.token_ids or ()) for choice in choices))


def _characters(values: Iterable[object], beside: frozenset[str] = _NONE) -> int:
    """Of all strings within, and one for each value, but for fields of the names `beside`."""
    total, pending = 0, list(values)
    while pending:
        value = pending.pop()
        total += 1
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, dict):
            pending += value
            pending += [v for name, v in value.items() if name not in beside]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, BaseModel):
            pending += vars(value).values()
    return total


def _structure(parts: Iterable[bytes], limit: int) -> int:
    """Commas, colons and brackets, those within texts included; counted until it is too many."""
    total = 0
    for part in parts:
        for start in range(0, len(part), _SLICE):
            piece = part[start : start + _SLICE]
            total += sum(map(piece.count, (b",", b":", b"[", b"{")))
            if total > limit:
                return total
    return total


def _without_sources(part: bytes) -> Iterator[bytes]:
    """What is left without the values of keys ``data``, as far as they are plain texts.

    That is the base64 of the Messages API. What is another text is found once it is parsed.
    """
    kept = at = 0
    for _ in range(_MOST_SOURCES):
        key = part.find(_SOURCE, at)
        start = part.find(b'"', key + len(_SOURCE))
        at = part.find(b'"', start + 1)
        if min(key, start, at) < 0:
            break
        is_text = not part[key + len(_SOURCE) : start].strip()
        if is_text and part[start:at].isascii() and part.find(b"\\", start, at) < 0:
            yield part[kept:start]
            kept = at
    yield part[kept:]


def _check_text(size: int, settings: ServerSettings) -> None:
    if size > settings.max_text_bytes:
        raise _too_large("text", f"{settings.max_text_bytes} bytes beside its pictures")


def _too_large(limit: str, what: str) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "RequestTooLargeError",
        f"The body has more than {what}.",
        limit=limit,
    )
