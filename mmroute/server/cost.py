"""What a request costs, known from what it is: it decides where the request runs.

A body is looked at twice. Before it is parsed its structure and its text are counted, because
objects take many times the memory of their bytes. The parsed request then says which of its texts
are the contents of files. All other bytes of the body count as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pybase64
from pydantic import BaseModel

from mmroute.engines.vllm.api.errors import too_large
from mmroute.engines.vllm.api.messages_protocol import AnthropicMessagesRequest
from mmroute.engines.vllm.api.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from mmroute.engines.vllm.api.responses_protocol import ResponsesRequest
from mmroute.images.data_url import DecodedUrl, is_data_url
from mmroute.images.plain_headers import is_quick
from mmroute.server.bodies import Body
from mmroute.server.settings import ServerSettings

# Of a picture only the header is read: a byte costs a 64th of text, the header as much as 512,
# unless it is one of those that take long.
_BYTES_PER_CHARACTER: Final = 64
_CHARACTERS_PER_FILE: Final = 512
_CHARACTERS_PER_PROMPT: Final = 256
_BYTES_PER_ID: Final = 9  # at most, with a comma and a space
_PER_BRACKET: Final = 4  # a list takes the memory and the time of so many numbers
_SLICE: Final = 1 << 20
_LINKED: Final = frozenset({"image_url", "video_url", "audio_url"})
_SOURCE: Final = b'"data":'
_MOST_SOURCES: Final = 1 << 13
LONG_STRUCTURE: Final = 1 << 14
"""A body with more commas, colons and brackets is parsed in a thread."""


class Cost(NamedTuple):
    """What a request costs.

    Attributes:
        text: bytes of a body beside its files and token IDs; a token ID counts as one.
        files: characters of data URLs and base64.
        items: headers of files, and prompts, in characters of text.
        links: how many links it has.
    """

    text: int = 0
    files: int = 0
    items: int = 0
    links: int = 0

    @property
    def characters(self) -> int:
        """All of it as so many characters of text."""
        return self.text + self.items + self.files // _BYTES_PER_CHARACTER


def check_body(body: Body, settings: ServerSettings) -> int:
    """Refuse too much text or structure before it becomes objects.

    Returns:
        Its commas, colons and brackets beside the contents of data URLs; 0 where they cannot be
        many.

    Raises:
        ApiError: 413.
    """
    few = min(LONG_STRUCTURE, settings.max_structure, settings.max_text_bytes)
    if body.text_size <= few:  # and so is its structure
        return 0
    rest, size = body.rest, body.text_size
    if size > settings.max_text_bytes:
        rest = [piece for part in rest for piece in _without_sources(part)]
        size = sum(map(len, rest))
    _check_text(size, settings)
    structure = _structure(rest, settings.max_structure)
    if structure > settings.max_structure:
        raise too_large(
            f"{settings.max_structure} commas, colons and brackets, which count as four each",
            "structure",
        )
    return structure


def cost_of(request: BaseModel, size: int, settings: ServerSettings) -> Cost:
    """What a request costs.

    Args:
        request: parsed.
        size: bytes of its body.
        settings: with the limit of text.

    Raises:
        ApiError: 413: it has too much text, whatever it looked like.
    """
    match request:
        case ChatCompletionRequest() | TokenizeChatRequest():
            cost = _beside_files(size, _urls_of_chat(request))
        case AnthropicMessagesRequest():
            sources = list(_sources_of_messages(request))
            urls = [source.get("url") for source in sources if source.get("type") == "url"]
            base64 = [source.get("data") for source in sources if source.get("type") != "url"]
            cost = _beside_files(size, urls, base64)
        case ResponsesRequest():
            cost = _beside_files(size, _urls_of_responses(request))
        case CompletionRequest():
            cost = _of_prompts(size, request.prompt)
        case TokenizeCompletionRequest():
            cost = Cost(size)
        case DetokenizeRequest():
            cost = Cost(text=len(request.tokens))
        case _:
            cost = Cost()
    _check_text(cost.text, settings)
    return cost


def _beside_files(size: int, urls: Iterable[object], base64: Iterable[object] = ()) -> Cost:
    """A body of this size, in which some texts are the contents of files or links to files.

    Base64 has ASCII characters only. A content with others is never decoded, and stays text.
    """
    links, contents = 0, [*base64]
    for url in urls:
        if isinstance(url, str) and is_data_url(url):
            contents.append(url)
        else:
            links += bool(url)
    if not contents:
        return Cost(size, 0, 0, links)
    files = items = 0
    for content in contents:
        if isinstance(content, str) and content.isascii():
            length, header = _of_file(content)
            files += length
            items += header
    return Cost(size - files, files, items, links)


def _of_file(content: str) -> tuple[int, int]:
    """Characters of a data URL or of base64 as they were sent, and what reading its header costs.

    A picture with many parts, or with a compressed one, may cost as much as text of its length.
    """
    if isinstance(content, DecodedUrl):
        length = len(content.content) * 4 // 3
        quick = bool(content.images) or is_quick(content.content)
    else:
        length = len(content)
        quick = _is_quick_base64(content)
    return length, _CHARACTERS_PER_FILE + (0 if quick else length)


def _is_quick_base64(content: str) -> bool:
    try:
        return is_quick(pybase64.b64decode(content[content.find(",") + 1 :], validate=True))
    except ValueError:  # which is found as fast when it is read
        return True


def _urls_of_chat(request: ChatCompletionRequest | TokenizeChatRequest) -> Iterator[object]:
    for message in request.messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            for name in _LINKED.intersection(part) if isinstance(part, dict) else ():
                link = part[name]
                yield link.get("url") if isinstance(link, dict) else link


def _sources_of_messages(request: AnthropicMessagesRequest) -> Iterator[dict[str, Any]]:
    for message in request.messages:
        for block in message.content if isinstance(message.content, list) else ():
            found = [block.source] if block.type == "image" else []
            if block.type == "tool_result" and message.role == "user":
                found = [item.get("source") for item in _typed(block.content, "image")]
            yield from (source for source in found if isinstance(source, dict))


def _urls_of_responses(request: ResponsesRequest) -> Iterator[object]:
    for item in request.input if isinstance(request.input, list) else ():
        for part in _typed(item.get("content", item.get("output")), "input_image"):
            yield part.get("image_url")


def _typed(parts: object, kind: str) -> Iterator[dict[str, Any]]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") == kind:
            yield part


def _of_prompts(size: int, prompt: str | list[Any] | None) -> Cost:
    prompts = prompt if isinstance(prompt, list) else []
    ids = len(prompts)
    if several := not prompts or not isinstance(prompts[0], int):
        ids = sum([len(one) for one in prompts if isinstance(one, list)])
    text = ids + max(0, size - _BYTES_PER_ID * ids)
    return Cost(text, items=_CHARACTERS_PER_PROMPT * len(prompts) if several else 0)


def _structure(parts: Iterable[bytes], limit: int) -> int:
    """Commas, colons and brackets, those within texts included; counted until it is too many."""
    total = 0
    for part in parts:
        for start in range(0, len(part), _SLICE):
            piece = part[start : start + _SLICE]
            total += sum(map(piece.count, (b",", b":")))
            total += _PER_BRACKET * sum(map(piece.count, (b"[", b"{")))
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
        raise too_large(f"{settings.max_text_bytes} bytes beside its pictures", "text")
