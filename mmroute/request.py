"""What goes into one normalization: image items, and the options of the engine's API."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, SupportsIndex, TypeAlias

from mmroute.errors import invalid, shown

__all__ = [
    "Image",
    "ImageFile",
    "ImageSize",
    "Lora",
    "Message",
    "RequestOptions",
    "check_one_given",
    "check_text",
    "checked_images",
    "checked_uuid",
    "image_size",
    "integers",
    "size_of",
    "stored_size_of",
]

_MAX_CACHE_SALT: Final = 128
_MAX_TEXT: Final = 4096
_NOT_IN_CACHE_SALT: Final = frozenset("@/\\\0")

Message: TypeAlias = Mapping[str, Any]
"""One OpenAI chat message. Its values come from a client and are checked where they are used."""


@dataclass(frozen=True, slots=True)
class ImageSize:
    """An image by its size, on which token IDs depend.

    Attributes:
        width: pixels, upright: after any EXIF rotation that the engine applies.
        height: pixels, likewise.
        uuid: the client's own name for the image, if it sent one. Token IDs do not depend on
            it; image identities do.

    >>> ImageSize(1280, 720)
    ImageSize(width=1280, height=720, uuid=None)
    """

    width: int
    height: int
    uuid: str | None = None

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image by its file, on which its identity depends; made by `mmroute.read_image`.

    Attributes:
        size: as it is shown, and the client's own name for it.
        stored: as it is stored in the file, before any EXIF rotation.
        converted: whether the engine has to convert the picture to RGB.
        data: the whole file.
    """

    size: ImageSize
    stored: ImageSize
    converted: bool
    data: bytes = field(repr=False)


Image: TypeAlias = ImageSize | ImageFile
"""An image of a request, as far as it is known."""


def size_of(image: Image) -> ImageSize:
    """The size by which the engine counts an image."""
    return image if isinstance(image, ImageSize) else image.size


def stored_size_of(image: Image) -> ImageSize:
    """The size of an image in its file, as far as that is known."""
    return image if isinstance(image, ImageSize) else image.stored


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA adapter, as far as block hashes depend on it.

    Attributes:
        name: as requests name it.
        path: from where the engine loads it.
    """

    name: str
    path: str


def check_one_given(*prompts: object) -> None:
    """Check that a request has one prompt, in one form.

    Raises:
        InexactError: `invalid_request`.
    """
    if sum(given is not None for given in prompts) != 1:
        raise invalid("give exactly one of messages, prompt and prompt_token_ids")


def image_size(width: object, height: object, uuid: object = None) -> ImageSize:
    """Check what a client says of an image.

    Raises:
        InexactError: `invalid_request` for anything but two positive integers and a text.
    """
    for name, value in (("width", width), ("height", height)):
        if not _is_length(value):
            raise invalid(f"image {name} must be a positive int of pixels, found {shown(value)}")
    return ImageSize(width, height, checked_uuid(uuid))  # type: ignore[arg-type]  # both are ints here


def _is_length(value: object) -> bool:
    return type(value) is int and value > 0


def checked_uuid(uuid: object) -> str | None:
    """Check the name a client gives an image.

    Raises:
        InexactError: `invalid_request` for anything but a text that can be hashed.
    """
    if uuid is None:
        return None
    if not isinstance(uuid, str):
        raise invalid(f"image uuid must be a string, found {shown(uuid)}")
    check_text("image uuid", uuid)
    return uuid


def checked_images(images: object) -> Sequence[Image]:
    """Check the images given with a request; None is no image.

    Raises:
        InexactError: `invalid_request` for anything but a sequence of images.
    """
    if images is None:
        return ()
    if not isinstance(images, Sequence):
        raise invalid(f"images must be a sequence of ImageSize, found {type(images).__name__}")
    for index, image in enumerate(images):
        if not isinstance(image, ImageSize | ImageFile):
            raise invalid(
                f"images[{index}] must be an ImageSize or ImageFile, found {shown(image)}"
            )
        size = size_of(image)
        if size.uuid is not None or not (_is_length(size.width) and _is_length(size.height)):
            image_size(size.width, size.height, size.uuid)
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
    try:
        return list(map(operator.index, listed))
    except TypeError as error:  # such as a row of a two-dimensional array
        raise invalid(f"{name} must be one flat list of integers: {error}") from error


def check_text(name: str, text: str) -> None:
    """Refuse a text that block hashes cannot cover, or that would be costly in all of them.

    Raises:
        InexactError: `invalid_request` for half of a surrogate pair, which JSON may hold, or
            for more than 4,096 characters.
    """
    if len(text) > _MAX_TEXT:
        raise invalid(f"{name} must have at most {_MAX_TEXT} characters, found {len(text)}")
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
        for name, flag in (
            ("add_special_tokens", self.add_special_tokens),
            ("add_generation_prompt", self.add_generation_prompt),
            ("continue_final_message", self.continue_final_message),
        ):
            if not isinstance(flag, bool):
                raise invalid(f"{name} must be true or false, found {shown(flag)}")
        for name, given in (
            ("chat_template_kwargs", self.chat_template_kwargs),
            ("mm_processor_kwargs", self.mm_processor_kwargs),
        ):
            if not isinstance(given, Mapping) or (
                given and not all(isinstance(key, str) for key in given)
            ):
                raise invalid(f"{name} must be an object, found {shown(given)}")
        _check_cache_salt(self.cache_salt)
        if self.lora is not None:
            _check_lora(self.lora)


def _check_cache_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not 1 <= len(salt) <= _MAX_CACHE_SALT:
        raise invalid(
            f"cache_salt must be a text of 1 to {_MAX_CACHE_SALT} characters, found {shown(salt)}"
        )
    if not _NOT_IN_CACHE_SALT.isdisjoint(salt):
        raise invalid(f"cache_salt must not contain @, /, \\ or NUL, found {shown(salt)}")
    check_text("cache_salt", salt)


def _check_lora(lora: object) -> None:
    if not isinstance(lora, Lora):
        raise invalid(f"lora must be a Lora, found {shown(lora)}")
    for name, value in (("name", lora.name), ("path", lora.path)):
        if not isinstance(value, str) or not value:
            raise invalid(f"lora.{name} must be a text that is not empty, found {shown(value)}")
        check_text(f"lora.{name}", value)
