"""Estimates the time that an answer takes, by which a server chooses a thread for it.

The parsed request tells which of its texts are contents of files. All other bytes of its body count
as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pybase64

from mmroute.images.data_url import DecodedUrl, is_data_url
from mmroute.images.plain_headers import is_quick
from mmroute.server.api import Cost

# Of a picture only the header is read: a byte costs a 64th of text, the header as much as 512,
# unless it is one of those that take long.
_CHARACTERS_PER_FILE: Final = 512
_CHARACTERS_PER_PROMPT: Final = 256
_BYTES_PER_ID: Final = 9  # at most, with a comma and a space
_LINKED: Final = frozenset({"image_url", "video_url", "audio_url"})


def cost_beside_files(size: int, urls: Iterable[object], base64: Iterable[object] = ()) -> Cost:
    """The cost of a body in which some texts are the contents of files or links to files.

    Base64 has ASCII characters only. Any other content is not decoded, and counts as text.
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


def cost_of_chat(size: int, messages: Iterable[Any]) -> Cost:
    """The cost of a body with chat messages, whose items are in their content parts."""
    return cost_beside_files(size, _urls(messages))


def cost_of_prompts(size: int, prompt: str | list[Any] | None) -> Cost:
    """The cost of a body with one or more prompts."""
    prompts = prompt if isinstance(prompt, list) else []
    ids = len(prompts)
    if several := not prompts or not isinstance(prompts[0], int):
        ids = sum([len(one) for one in prompts if isinstance(one, list)])
    text = ids + max(0, size - _BYTES_PER_ID * ids)
    return Cost(text, items=_CHARACTERS_PER_PROMPT * len(prompts) if several else 0)


def typed_parts(parts: object, kind: str) -> Iterator[dict[str, Any]]:
    """The parts of one type in a content; no parts if the content is no list."""
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") == kind:
            yield part


def _urls(messages: Iterable[Any]) -> Iterator[object]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            for name in _LINKED.intersection(part) if isinstance(part, dict) else ():
                link = part[name]
                yield link.get("url") if isinstance(link, dict) else link


def _of_file(content: str) -> tuple[int, int]:
    """The length of a data URL or of base64 as sent, and the cost of reading its header.

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
