"""Estimates the time that an answer takes, by which a server chooses a thread for it.

The parsed body tells which of its texts are contents of files. All other bytes count as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
_OF_IDS: Final = {"/v1/completions/render": "prompt", "/detokenize": "tokens"}


def cost_of(path: str, body: object, size: int) -> Cost:
    """The cost of a body of a route, which was sent as so many bytes."""
    if not isinstance(body, dict):
        return Cost(size)
    if path in _OF_IDS:
        return _of_prompts(body.get(_OF_IDS[path]), size)
    links = files = items = 0
    for name, content in _contents(path, body):
        is_file = name == "data" or (isinstance(content, str) and is_data_url(content))
        if not is_file:
            links += bool(content)
        # Base64 has ASCII characters only. Any other content is not decoded, and counts as text.
        elif isinstance(content, str) and content.isascii():
            length, header = _of_file(content)
            files += length
            items += header
    return Cost(size - files, files, items, links)


def _of_prompts(prompts: object, size: int) -> Cost:
    """The cost of a body with one or more prompts."""
    if not isinstance(prompts, list):
        return Cost(size)
    ids, several = len(prompts), not prompts or not isinstance(prompts[0], int)
    if several:
        ids = sum([len(one) for one in prompts if isinstance(one, list)])
    text = ids + max(0, size - _BYTES_PER_ID * ids)
    return Cost(text, items=_CHARACTERS_PER_PROMPT * len(prompts) if several else 0)


def _contents(path: str, body: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The links and the files of a body; a file without a link has the name ``data``."""
    if path.startswith("/v1/messages"):
        for message in _objects(body.get("messages")):
            yield from _sources(
                _objects(message.get("content")), by_user=message.get("role") == "user"
            )
    elif path.startswith("/v1/responses"):
        for item in _objects(body.get("input")):
            for part in _objects(item.get("content", item.get("output"))):
                if part.get("type") == "input_image":
                    yield "url", part.get("image_url")
    else:
        for message in _objects(body.get("messages")):
            for part in _objects(message.get("content")):
                for name in _LINKED & part.keys():
                    link = part[name]
                    yield "url", link.get("url") if isinstance(link, dict) else link


def _sources(blocks: Iterator[dict[str, Any]], *, by_user: bool) -> Iterator[tuple[str, object]]:
    for block in blocks:
        source = block.get("source")
        if block.get("type") == "tool_result" and by_user:
            yield from _sources(_objects(block.get("content")), by_user=False)
        elif block.get("type") == "image" and isinstance(source, dict):
            name = "url" if source.get("type") == "url" else "data"
            yield name, source.get(name)


def _objects(values: object) -> Iterator[dict[str, Any]]:
    for one in values if isinstance(values, list) else ():
        if isinstance(one, dict):
            yield one


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
