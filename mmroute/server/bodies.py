"""Checks the size of a body, and parses it as JSON.

The structure and the text of a body are counted before it is parsed, because Python objects take
many times the memory of the JSON that they are made of.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pybase64

from mmroute.chat.cache import ChatCache
from mmroute.errors import Reason
from mmroute.images.data_url import DecodedUrl, KnownFiles
from mmroute.requests.items import ImageFile
from mmroute.server.api_errors import invalid_body, of_reason
from mmroute.server.errors import too_large
from mmroute.server.settings import ServerSettings

_BASE64: Final = b";base64,"
_DATA_URL: Final = b'"data:'
_LONGEST_TYPE: Final = 128
_MOST_PICTURES: Final = 1 << 13
_WORTH_DECODING: Final = 1 << 12  # bytes of a picture; smaller ones are parsed as they are
_LARGE: Final = 1 << 20
_written: Final = msgspec.json.Encoder(enc_hook=str).encode  # a `DecodedUrl` without its content
# A list takes the memory and the time of four numbers.
_WEIGHTS: Final = {ord(","): 1, ord(":"): 1, ord("["): 4, ord("{"): 4}
_SOURCE: Final = b'"data":'
_MOST_SOURCES: Final = 1 << 13
LONG_STRUCTURE: Final = 1 << 14
"""A body with more commas, colons and brackets is parsed in a thread."""


class Body:
    """The bytes of a body, and the contents of data URLs among them."""

    __slots__ = ("contents", "raw", "rest", "text_size")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.contents: list[slice] = []  # of data URLs, which parsing does not enlarge
        self.rest: list[bytes] = []  # the bytes between them
        self.text_size = len(raw)  # the number of these bytes
        end = 0
        for content in _contents(raw) if len(raw) >= _WORTH_DECODING else ():
            self.contents.append(content)
            self.rest.append(raw[end : content.start])
            end = content.stop
            self.text_size -= end - content.start
        self.rest.append(raw[end:])


def parse_body(body: Body, files: KnownFiles) -> tuple[Any, bool]:
    """The JSON value of a body (None for an empty body), and whether it is strict JSON.

    Data URLs of large images are decoded at once, if possible; see `DecodedUrl`.
    """
    if not body.raw:
        return None, True
    try:
        if body.contents and (value := _with_decoded_urls(body, files)) is not None:
            return value, True
        return msgspec.json.decode(body.raw), True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(body.raw), False


def check_strict(body: Body, value: Any, is_json: bool) -> None:
    """Refuse what a strict frontend refuses in some fields, or reads otherwise.

    vLLM's own fields must be given once. Of equal keys the last is kept, so only they leave fewer
    colons in the value than in the body. The number -0 is a float to serde_json, and loses its sign
    here.
    """
    if not is_json:
        raise invalid_body(
            "The body is not strict JSON: NaN, half a surrogate pair, a byte order mark or a "
            "number out of range", "body"
        )  # fmt: skip
    written = _written(value)

    def lost(mark: bytes) -> bool:
        return sum(part.count(mark) for part in body.rest) > written.count(mark)

    if lost(b":"):
        raise of_reason(Reason.UNSUPPORTED_FIELD, "an object of the body has one key twice")
    integers: set[str] = set()
    if lost(b"-"):
        json.loads(body.raw, parse_int=integers.add)  # an exponent may lose its sign, too
    if "-0" in integers:
        raise of_reason(Reason.UNSUPPORTED_FIELD, "the body has the number -0; write it as -0.0")


def check_body(body: Body, settings: ServerSettings) -> int:
    """Refuse a body with too much text or structure, before it is parsed."""
    few = min(LONG_STRUCTURE, settings.max_structure, settings.max_text_bytes)
    if body.text_size <= few:  # then its structure is below every limit, too
        return 0
    rest, size = body.rest, body.text_size
    if size > settings.max_text_bytes:
        rest = [piece for part in rest for piece in _without_sources(part)]
        size = sum(map(len, rest))
    check_text(size, settings)
    structure = _structure(rest)
    if structure > settings.max_structure:
        raise too_large(
            f"{settings.max_structure} commas, colons and brackets, which count as four each",
            "structure",
        )
    return structure


def check_text(size: int, settings: ServerSettings) -> None:
    """Refuse a body with too much text."""
    if size > settings.max_text_bytes:
        raise too_large(f"{settings.max_text_bytes} bytes beside its pictures", "text")


def _contents(raw: bytes) -> Iterator[slice]:
    """The contents of data URLs, each up to the next quotation mark, which ends its string."""
    at = 0
    for _ in range(_MOST_PICTURES):
        # A character is found much faster than a word, and most texts have none of this one.
        separator = raw.find(_BASE64, raw.find(_BASE64[:1], at))
        at = raw.find(b'"', separator)
        if separator < 0 or at < 0:
            return
        start = separator + len(_BASE64)
        # A text with other characters takes at most four times its bytes in memory.
        small = at - start <= _LARGE or (raw[start:at].isascii() and raw.find(b"\\", start, at) < 0)
        if small and raw.rfind(_DATA_URL, max(0, separator - _LONGEST_TYPE), separator) >= 0:
            yield slice(start, at)


def _with_decoded_urls(body: Body, files: KnownFiles) -> Any:
    """The value of a body whose data URLs are all links to large images; None for other bodies.

    The body is parsed with a mark in the place of each content. This is safe, because JSON escapes
    no character of base64, and because the marks are random, so that no client can send one.
    """
    if len(body.raw) - body.text_size < _WORTH_DECODING * len(body.contents):
        return None
    mark = random.getrandbits(64)
    contents = {f"{mark:x}-{number}": content for number, content in enumerate(body.contents)}
    pieces = [body.rest[0]]
    for name, piece in zip(contents, body.rest[1:], strict=True):
        pieces += name.encode(), piece
    value = msgspec.json.decode(b"".join(pieces))
    messages = value.get("messages") if isinstance(value, dict) else None
    if ChatCache.is_long_enough(messages):  # which compares all of a long chat with earlier ones
        return None
    for link in _image_links(messages):
        head, _, name = link["url"].partition(",")
        if name in contents and head.startswith("data:") and head.endswith(";base64"):
            try:
                link["url"] = DecodedUrl.of(head, *_decoded(body.raw, contents.pop(name), files))
            except ValueError:
                return None
    return None if contents else value


def _decoded(
    raw: bytes, text: slice, files: KnownFiles
) -> tuple[bytes, dict[bool, ImageFile] | None]:
    """The file whose base64 text is `raw[text]`, and the cache of images that were read from it."""
    known = files.find(raw, text)
    if known is not None:
        return known.content, known.images
    return pybase64.b64decode(memoryview(raw)[text], validate=True), None


def _image_links(messages: object) -> Iterator[dict[str, Any]]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            link = part.get("image_url") if isinstance(part, dict) else None
            if isinstance(link, dict) and isinstance(link.get("url"), str):
                yield link


def _parse_leniently(raw: bytes) -> object:
    """Parse with Python's own parser, as vLLM does: it takes NaN, lone surrogates and a BOM."""
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise invalid_body(f"JSON decode error: {error}", f"body.{error.pos}") from None
    except (ValueError, RecursionError):  # not UTF-8; nested too deeply
        raise invalid_body("There was an error parsing the body", "body") from None


def _structure(parts: Iterable[bytes]) -> int:
    """The number of commas, colons and brackets, also in strings."""
    # `bytes.count` of a character takes ten times as long before Python 3.13.
    codes = np.frombuffer(b"".join(parts), np.uint8)
    counted = (weight * np.count_nonzero(codes == one) for one, weight in _WEIGHTS.items())
    return int(sum(counted))


def _without_sources(part: bytes) -> Iterator[bytes]:
    """The bytes without the strings under keys ``data``, in which the Messages API has base64.

    Strings that are not base64 are counted after parsing.
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
