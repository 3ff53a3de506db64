"""Pictures of one colour, for images of which only the size is known."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from PIL import Image

from mmroute.errors import quoted
from mmroute.images.data_url import is_data_url
from mmroute.lab.parity.cases import UndecidedError, parts_of

_COLOUR: Final = (120, 90, 160)
# Above this Pillow warns of a picture's size; each pixel takes three bytes.
_MAX_PIXELS: Final = 89_478_485
# Some processors first scale the short side up to hundreds of pixels, which can take gigabytes.
_MAX_ASPECT: Final = 2500
_IMAGE_TYPES: Final = ("image", "image_url")
_LINKS: Final = ("http://", "https://")
_OTHER_LINKS: Final = ("audio_url", "video_url")
_OTHERS: Final = (*_OTHER_LINKS, "input_audio")


@functools.lru_cache(maxsize=8)
def _picture(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), _COLOUR)


@functools.lru_cache(maxsize=1024)
def data_url(width: int, height: int) -> str:
    """A PNG file of that size, as a data URL.

    >>> data_url(2, 1)[:22]
    'data:image/png;base64,'
    """
    file = io.BytesIO()
    _picture(width, height).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def pictures(images: object) -> list[Image.Image]:
    """One picture for every entry of a request's `images`. They are shared: do not change them."""
    return [_picture(*size) for size in _sizes(images)]


def with_pictures(messages: object, images: object) -> Any:
    """A copy of messages with a data URL in every image part that takes its size from `images`.

    These are ``{"type": "image"}`` parts and links. A part with a data URL stays as it is. So do
    malformed parts, which the engine is to refuse.
    """
    waiting = iter(_sizes(images))
    result = messages
    if isinstance(messages, Sequence) and not isinstance(messages, str | bytes):
        fill = functools.partial(_with_picture, waiting)
        result = [_with_parts(message, fill) for message in messages]
    if any(True for _ in waiting):
        raise UndecidedError(
            "`images` has more sizes than the messages have image parts to take them"
        )
    return result


def split_pictures(messages: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Messages with a bare ``{"type": "image"}`` for every data URL, and the data URLs in order."""
    urls: list[str] = []

    def bare(part: Any) -> Any:
        url = _url(part)
        if url is None or not is_data_url(url):
            return part
        urls.append(url)
        return {"type": "image"}

    return [_with_parts(message, bare) for message in messages], urls


def has_media(messages: object) -> bool:
    """Whether any part of the messages looks like an image, a video or audio."""
    return any(_is_image(part) or part.get("type") in _OTHERS for part in parts_of(messages))


def _with_parts(message: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [change(part) for part in message["content"]]}


def _with_picture(waiting: Iterator[tuple[int, int]], part: Any) -> Any:
    if isinstance(part, Mapping) and (kind := next((k for k in _OTHER_LINKS if k in part), None)):
        if not is_data_url(_url(part, kind) or ""):
            # An engine would fetch it, and its answer would depend on the network.
            raise UndecidedError("links to audio and video are not followed")
        return part
    url = _url(part)
    if not _is_image(part) or (url is not None and is_data_url(url)):
        return part
    if part.get("type") != "image" and not (url or "").lower().startswith(_LINKS):
        return part
    size = next(waiting, None)
    if size is None:
        raise UndecidedError("the messages have more image parts than `images` has sizes")
    link = part.get("image_url")
    link = {**link} if isinstance(link, Mapping) else {}
    # The uuid is left out, because engines cache by it and would keep this picture under it.
    kept = {name: value for name, value in part.items() if name != "uuid"}
    return {**kept, "type": "image_url", "image_url": {**link, "url": data_url(*size)}}


def _is_image(part: object) -> bool:
    return isinstance(part, Mapping) and (part.get("type") in _IMAGE_TYPES or "image_url" in part)


def _url(part: object, kind: str = "image_url") -> str | None:
    link = part.get(kind) if isinstance(part, Mapping) else None
    url = link.get("url") if isinstance(link, Mapping) else link
    return url if isinstance(url, str) else None


def _sizes(images: object) -> list[tuple[int, int]]:
    if images is None:
        return []
    if not isinstance(images, Sequence):
        raise UndecidedError(f"`images` must be a list of sizes, found {quoted(images)}")
    return [_size(index, image) for index, image in enumerate(images)]


def _size(index: int, image: object) -> tuple[int, int]:
    values = image if isinstance(image, Mapping) else {}
    width, height = values.get("width"), values.get("height")
    if type(width) is not int or type(height) is not int or width < 1 or height < 1:
        raise UndecidedError(f"images[{index}] must have width and height, found {quoted(image)}")
    thin = max(width, height) > _MAX_ASPECT * min(width, height)
    if thin or width * height > _MAX_PIXELS:
        raise UndecidedError(
            f"images[{index}] is {width}x{height}: no picture of more than {_MAX_PIXELS} pixels "
            f"or of an aspect above {_MAX_ASPECT} is made"
        )
    return width, height
