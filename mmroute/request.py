"""What goes into one normalization: image items, and the options of the engine's API."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, SupportsIndex, TypeAlias

from mmroute.errors import invalid, shown

__all__ = [
    "ImageContent",
    "ImageSize",
    "Lora",
    "Message",
    "RequestOptions",
    "check_unicode",
    "image_size",
    "image_sizes",
    "integers",
]

_MAX_CACHE_SALT: Final = 128
_NOT_IN_CACHE_SALT: Final = frozenset("@/\\\0")

Message: TypeAlias = Mapping[str, Any]
"""One OpenAI chat message. Its values come from a client and are checked where they are used."""


@dataclass(frozen=True, slots=True)
class ImageContent:
    """The file of an image, as far as its identity depends on it.

    Attributes:
        data: the whole file.
        stored: width and height in pixels, before any EXIF rotation.
        converted: whether the engine has to convert the picture to RGB.
    """

    data: bytes = field(repr=False)
    stored: tuple[int, int]
    converted: bool


@dataclass(frozen=True, slots=True)
class ImageSize:
    """An image: its size, on which token IDs depend, and what its identity is made of.

    Attributes:
        width: pixels, upright: after any EXIF rotation that the engine applies.
        height: pixels, likewise.
        uuid: the client's own name for the image, if it sent one. Token IDs do not depend on
            it; image identities do.
        content: the file, where it was read; see `mmroute.read_image`.

    >>> ImageSize(1280, 720)
    ImageSize(width=1280, height=720, uuid=None)
    """

    width: int
    height: int
    uuid: str | None = None
    content: ImageContent | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA adapter, as far as block hashes depend on it.

    Attributes:
        name: as requests name it.
        path: from where the engine loads it.
    """

    name: str
    path: str


def image_size(width: object, height: object, uuid: object = None) -> ImageSize:
    """Check what a client says of an image.

    Raises:
        InexactError: `invalid_request` for anything but two positive integers and a text.
    """
    for name, value in (("width", width), ("height", height)):
        if type(value) is not int or value < 1:
            raise invalid(f"image {name} must be a positive int of pixels, found {shown(value)}")
    if uuid is not None and not isinstance(uuid, str):
        raise invalid(f"image uuid must be a string, found {type(uuid).__name__}")
    return ImageSize(width, height, uuid)  # type: ignore[arg-type]  # both are ints here


def image_sizes(images: object) -> Sequence[ImageSize]:
    """Check the images of one request; None is no image.

    Raises:
        InexactError: `invalid_request` for anything but a sequence of `ImageSize`.
    """
    if images is None:
        return ()
    if not isinstance(images, Sequence):
        raise invalid(f"images must be a sequence of ImageSize, found {type(images).__name__}")
    for index, image in enumerate(images):
        if not isinstance(image, ImageSize):
            raise invalid(f"images[{index}] must be an ImageSize, found {shown(image)}")
        image_size(image.width, image.height, image.uuid)
    return images


def integers(name: str, values: object) -> list[int]:
    """A list of ints from any iterable of integers, numpy's included.

    Raises:
        InexactError: `invalid_request`, naming the first value that is none.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise invalid(f"{name} must be a list of integers, found {type(values).__name__}")
    listed = list(values)
    if set(map(type, listed)) <= {int}:
        return listed
    for index, value in enumerate(listed):
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise invalid(f"{name}[{index}] must be an integer, found {shown(value)}")
    return list(map(operator.index, listed))


def check_unicode(name: str, text: str) -> None:
    """Refuse a text that cannot be hashed: JSON may hold half of a surrogate pair.

    Raises:
        InexactError: `invalid_request`.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{name} holds a lone surrogate: {error.reason}") from error


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The request's own fields, with the engine's defaults (vLLM 0.33.0, OpenAI API).

    Attributes:
        add_special_tokens: put BOS in front of text; chat requests and rendered prompts: no.
        add_generation_prompt: end a chat prompt with the assistant's header.
        continue_final_message: leave the last message open.
        chat_template_kwargs: variables for the chat template.
        tools: OpenAI tool definitions.
        mm_processor_kwargs: overrides for the image processor.
        cache_salt: keeps the caches of tenants apart.
        lora: the adapter that answers.
    """

    add_special_tokens: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] | None = None
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    cache_salt: str | None = None
    lora: Lora | None = None

    def check(self) -> None:
        """Check the kinds of all fields but `tools`, which the chat renderer checks.

        Raises:
            InexactError: `invalid_request`, naming the field.
        """
        for name in ("add_special_tokens", "add_generation_prompt", "continue_final_message"):
            if not isinstance(getattr(self, name), bool):
                raise invalid(f"{name} must be true or false, found {shown(getattr(self, name))}")
        for name in ("chat_template_kwargs", "mm_processor_kwargs"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
                raise invalid(f"{name} must be an object, found {shown(given)}")
        _check_cache_salt(self.cache_salt)
        if self.lora is not None:
            _check_lora(self.lora)


def _check_cache_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not 1 <= len(salt) <= _MAX_CACHE_SALT:
        raise invalid(f"cache_salt must be a text of 1 to {_MAX_CACHE_SALT} characters")
    if not _NOT_IN_CACHE_SALT.isdisjoint(salt):
        raise invalid("cache_salt must not contain @, /, \\ or NUL")
    check_unicode("cache_salt", salt)


def _check_lora(lora: Lora) -> None:
    for name, value in (("name", lora.name), ("path", lora.path)):
        if not isinstance(value, str) or not value:
            raise invalid(f"lora.{name} must be a text that is not empty, found {shown(value)}")
        check_unicode(f"lora.{name}", value)
